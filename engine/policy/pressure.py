"""How scarce room in the KV cache is, for the balancer, for operators, and for `Retry-After`."""

from math import exp, inf
from typing import NamedTuple


class Pressure(NamedTuple):
    """What a gate tells of itself."""

    programs_resident: int = 0
    programs_held: int = 0
    """Programs with a held call."""
    held_tokens: int = 0
    """Room that these want, and that nobody claims."""
    pool_ms: float = 0.0
    """T_pool; 0 while it is unknown."""
    expected_wait_ms: float = 0.0
    """How long a program that arrives now is likely to be held."""


class Turnover:
    """How fast programs are let in: tokens per millisecond, smoothed over T_pool or so."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._since_ms = 0.0
        self._memory_ms = inf

    def let_in(self, tokens: int, now_ms: float, *, memory_ms: float) -> None:
        """Note that a program was let in.

        Args:
            tokens: The room it took.
            now_ms: When.
            memory_ms: What happened longer ago hardly counts.
        """
        self._rate = self._decayed(now_ms)
        self._memory_ms = memory_ms
        if memory_ms < inf:
            self._rate += tokens / memory_ms
        self._since_ms = now_ms

    def wait_ms(self, tokens: int, now_ms: float) -> float:
        """Return how long it takes to let in programs that want so many tokens; 0 when there are none.

        While nothing is known, or nobody was let in for long, it is the time that is looked back on.
        """
        if not tokens or self._memory_ms == inf:
            return 0.0
        rate = max(self._decayed(now_ms), tokens / (100 * self._memory_ms))
        return tokens / rate

    def _decayed(self, now_ms: float) -> float:
        return self._rate * exp((self._since_ms - now_ms) / self._memory_ms) if self._memory_ms < inf else self._rate
