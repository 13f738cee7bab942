"""How much of the engine's time computing again may cost: a cap, so that it never costs more than it gains.

A displaced call loses its KV cache to whoever needs the room and computes it again when it resumes (recompute; the
paper swaps). While the cache is roomy that costs nothing. When it is not, every exchange costs a prefill, and with more
calls waiting than the cache holds the engine would do little else.

Rules:
* Computing again what a displaced call had may take a hundredth of the engine's time; a step's is divided among its
  tokens. What is not used is saved up, to one second; what was spent too much is paid back before anybody is displaced.
* The gate has a budget of its own, for what visits bring about (`gate.py`).
"""

from math import inf

SHARE = 0.01
SAVED_MS = 1000.0


class RecomputeBudget:
    """What an engine has left for computing again.

    Args:
        share: Of the engine's time.
    """

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._balance_ms = SAVED_MS

    @property
    def opens_in_ms(self) -> float:
        """Return how much engine time must pass until there is any left; 0: none, infinite: none will do."""
        if self._balance_ms >= 0:
            return 0.0
        return -self._balance_ms / self._share if self._share else inf

    def step(self, step_ms: float, recomputed_ms: float = 0.0) -> None:
        """Take in a step, or several.

        Args:
            step_ms: How long it took.
            recomputed_ms: The part of it that went into what had been computed before.
        """
        self._balance_ms = min(SAVED_MS, self._balance_ms + self._share * step_ms - recomputed_ms)

    def spend(self, recomputed_ms: float) -> None:
        """Take off what is going to be computed again."""
        self._balance_ms -= recomputed_ms
