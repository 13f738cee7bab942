"""What a gate tells of itself: why a call is held, and how scarce room is, for the balancer and for operators."""

from math import exp, inf
from typing import NamedTuple

IN_TIER = "in the CPU tier"
ON_DEVICE = "on the device"


class Hold(NamedTuple):
    """Why a call is held."""

    order: str
    """Of the held calls: the policy that gave this one its rank, or what else the gate goes by."""
    programs_ahead: int
    """With a held call that goes first."""
    wanted_tokens: int
    free_tokens: int
    where: str = ""
    """Which room is short, if there is a CPU tier: that there, or for a resident's call that on the device."""

    def __str__(self) -> str:
        """Say it in words."""
        wanted, free = round(self.wanted_tokens / 1000), round(self.free_tokens / 1000)
        programs = "1 program" if self.programs_ahead == 1 else f"{self.programs_ahead} programs"
        where = self.where and f" {self.where}"
        return f"held: {programs} ahead by {self.order}, {wanted}k of {free}k tokens free{where}"


class Pressure(NamedTuple):
    """What a gate tells of itself."""

    programs_resident: int = 0
    programs_held: int = 0
    """Programs with a held call."""
    held_tokens: int = 0
    """Room that these wanted, and that nobody claimed, when their latest calls came."""
    pool_ms: float = 0.0
    """T_pool; 0 while it is unknown."""
    expected_wait_ms: float = 0.0
    """How long a program that arrives now is likely to be held."""


class Turnover:
    """How fast programs are let in. What happened longer ago than a given time hardly counts."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._since_ms = 0.0

    def let_in(self, tokens: int, now_ms: float, *, memory_ms: float) -> None:
        """Note that a program was let in.

        Args:
            tokens: The room it took.
            now_ms: When.
            memory_ms: The time to look back on; infinite while that is unknown.
        """
        self._tokens = self._recent(now_ms, memory_ms) + tokens
        self._since_ms = now_ms

    def wait_ms(self, tokens: int, now_ms: float, *, memory_ms: float) -> float:
        """Return how long it takes to let in programs that want so many tokens, at most 100 times `memory_ms`.

        It is 0 when they want none, and while the time to look back on is unknown.
        """
        if not tokens or memory_ms == inf:
            return 0.0
        return memory_ms * tokens / max(self._recent(now_ms, memory_ms), tokens / 100)

    def _recent(self, now_ms: float, memory_ms: float) -> float:
        return self._tokens * exp((self._since_ms - now_ms) / memory_ms)
