"""T_pool: how long the engine would take to fill its whole KV cache, the measure of everything the gate does with time.

To keep a program's cache is worth at most what it costs to compute it again, and all caches together cost T_pool: the
tokens that fit times the time to compute one. Rotating programs once in several T_pool costs a known share of the
engine's time; a program that is away for longer than T_pool holds room that others could have used meanwhile.

Rules:
* With a tier of KV in CPU memory the whole of it is what is filled, and T_pool is the time to compute that: who leaves
  the tier has lost its cache. A copy from there to the device is measured, too; it counts for visits (`visits.py`).
* The time of a token is measured, not set: of steps that mostly compute prompts, duration over tokens, both smoothed.
  So a step of many tokens counts for more: a cache is computed by such.
* Until there was such a step T_pool is infinite: nothing is known that would be worth a decision.
"""

from math import inf

PROMPT_SHARE = 0.5
"""Tokens of prompts in a step, at least, for it to count: decodes take time, too."""
TOKENS_MIN = 64
SMOOTHING = 0.1
"""Weight of the latest one that counts."""


class PoolTime:
    """Measures T_pool.

    Args:
        tokens: Tokens that fit into the KV cache.
    """

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._computing = TokenTime()
        self._copying = TokenTime()

    @property
    def token_ms(self) -> float:
        """Return how long it takes to compute one token of a prompt; 0 while that is unknown."""
        return self._computing.token_ms or 0.0

    @property
    def copy_token_ms(self) -> float:
        """Return how long it takes to copy one token back from a tier; 0 while that is unknown."""
        return self._copying.token_ms or 0.0

    @property
    def pool_ms(self) -> float:
        """Return T_pool; infinite while it is unknown."""
        return inf if self._computing.token_ms is None else self._computing.token_ms * self._tokens

    @property
    def known_pool_ms(self) -> float:
        """Return T_pool; 0 while it is unknown."""
        return self.token_ms * self._tokens

    def step(self, step_ms: float, *, prompt_tokens: int, tokens: int) -> None:
        """Take in a step.

        Args:
            step_ms: How long it took.
            prompt_tokens: Tokens of prompts in it.
            tokens: All tokens in it.
        """
        if step_ms > 0 and prompt_tokens >= max(TOKENS_MIN, PROMPT_SHARE * tokens):
            self._computing.take(step_ms, prompt_tokens)

    def copied(self, copy_ms: float, tokens: int) -> None:
        """Take in a copy from a tier.

        Args:
            copy_ms: How long it took.
            tokens: How many tokens came back by it.
        """
        if copy_ms > 0 and tokens:
            self._copying.take(copy_ms, tokens)


class TokenTime:
    """How long one token takes."""

    def __init__(self) -> None:
        self._ms = 0.0
        self._tokens = 0.0
        self.token_ms: float | None = None
        """Milliseconds; None: it is not known."""

    def take(self, ms: float, tokens: int) -> None:
        """Take in how long some took."""
        weight = 1.0 if self.token_ms is None else SMOOTHING
        self._ms += weight * (ms - self._ms)
        self._tokens += weight * (tokens - self._tokens)
        self.token_ms = self._ms / self._tokens
