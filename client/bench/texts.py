"""What the prompts of a program consist of: token ids, each drawn at random, and the answers that it got.

Rules:
* Programs of one trace and prefix group have the same system prompt, where it is equally long.
* A prompt begins as the system prompt, or as its source call's prompt and answer went on, whichever is longer; then
  comes new text. Calls of one group have the same prompt.
* What is new depends on the seed, the program and the call only: every system is asked the same, whenever it answers.
"""

import random
from collections.abc import Sequence

from autellix.schemas.traces.records import TraceCall
from autellix.schemas.traces.workloads import Arrival

VOCABULARY = range(300, 900)
"""Token ids of new text: every model has them, and no special token is among them."""


class Texts:
    """The prompts of one run.

    Args:
        seed: Decides all of them,
        edition: together with this one.
    """

    def __init__(self, seed: int, edition: int = 0) -> None:
        self._seed = f"{seed}.{edition}"
        self._system: dict[str, list[int]] = {}

    def prompt(self, name: str, arrival: Arrival, call: TraceCall, source: Sequence[int]) -> list[int]:
        """Return the prompt of a call, exactly as long as its record says.

        Args:
            name: Of the program, unique in the run.
            arrival: The program.
            call: The call.
            source: What its source call had and answered; empty without one.
        """
        shared = source[: call.shared_prefix_tokens]
        known = max(self._system_prompt(arrival, call.system_tokens), shared, key=len)[: call.prompt_tokens - 1]
        which = f"call {call.id}" if call.group is None else f"group {call.group}"
        return [*known, *self._new(f"{name} {which}", call.prompt_tokens - len(known))]

    def _system_prompt(self, arrival: Arrival, tokens: int) -> Sequence[int]:
        name = f"system {arrival.trace} {arrival.program.prefix_group} {tokens}"
        if name not in self._system:
            self._system[name] = self._new(name, tokens)
        return self._system[name]

    def _new(self, name: str, tokens: int) -> list[int]:
        chance = random.Random(f"text {self._seed} {name}")  # noqa: S311 - prompts, no secrets
        return chance.choices(VOCABULARY, k=tokens)


def known_tokens(call: TraceCall) -> int:
    """Return how many tokens of a prompt came before, in another call: what a prefix cache can save."""
    return min(max(call.shared_prefix_tokens, call.system_tokens), call.prompt_tokens - 1)
