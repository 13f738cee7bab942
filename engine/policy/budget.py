"""How much of the engine's time displacement may cost: a cap, so that it never costs more than it gains.

A displaced call loses its KV cache to whoever needs the room and computes it again when it resumes (recompute; the
paper swaps). While the cache is roomy that costs nothing. When it is not, every exchange costs a prefill, and with more
calls waiting than the cache holds the engine would do little else.

Rules:
* Computing again what a displaced call had may take an eighth of the engine's time; a step's time is divided among its
  tokens. What is not used is saved up, to one second; what was spent too much is paid back before anybody is displaced.
"""

SHARE = 0.125
SAVED_MS = 1000.0


class RecomputeBudget:
    """What an engine has left for computing again."""

    def __init__(self) -> None:
        self._balance_ms = SAVED_MS

    @property
    def opens_in_ms(self) -> float:
        """Return how much engine time must pass before a call may be displaced; 0: none."""
        return max(0.0, -self._balance_ms / SHARE)

    def step(self, step_ms: float, recomputed_ms: float) -> None:
        """Take in a step, or several.

        Args:
            step_ms: How long it took.
            recomputed_ms: The part of it that went into what had been computed before.
        """
        self._balance_ms = min(SAVED_MS, self._balance_ms + SHARE * step_ms - recomputed_ms)
