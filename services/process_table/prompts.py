"""Guesses how many tokens a call's prompt will have, without a tokenizer on the path.

A program's next prompt is its last one plus what was added; the bytes that were added, over the model's measured bytes
a token, say how much that is. The engine's own count corrects the guess after each call.
"""

from collections import OrderedDict
from dataclasses import dataclass

from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import Call, CallEnd

BYTES_A_TOKEN_UNKNOWN = 4.0
ARRIVED_REMEMBERED = 100_000
FOLLOW = 0.1
"""Weight of the newest measurement in the running mean."""


@dataclass(frozen=True)
class Seen:
    """The last call of a program whose length is known."""

    body_bytes: int
    prompt_tokens: int


class PromptEstimator:
    """Remembers the last counted prompt of each live program, and the bytes a token of each model."""

    def __init__(self) -> None:
        self._arrived: OrderedDict[CallId, tuple[int, str]] = OrderedDict()
        self._seen: dict[ProgramId, Seen] = {}
        self._bytes_a_token: dict[str, float] = {}

    def arrived(self, call: Call) -> int:
        """Return the guess for a call that arrives; tokens."""
        size = len(call.body)
        self._arrived[call.call_id] = (size, call.model)
        if len(self._arrived) > ARRIVED_REMEMBERED:  # the ends of the oldest were lost
            self._arrived.popitem(last=False)
        bytes_a_token = self._bytes_a_token.get(call.model, BYTES_A_TOKEN_UNKNOWN)
        seen = self._seen.get(call.program_id)
        if seen is None or size < seen.body_bytes:
            return round(size / bytes_a_token)
        return seen.prompt_tokens + round((size - seen.body_bytes) / bytes_a_token)

    def ended(self, event: CallEnd) -> None:
        """Learn from the engine's count of an ended call."""
        size, model = self._arrived.pop(event.call_id, (0, ""))
        if size == 0 or event.prompt_tokens == 0:
            return
        self._seen[event.program_id] = Seen(size, event.prompt_tokens)
        measured = size / event.prompt_tokens
        known = self._bytes_a_token.get(model, measured)
        self._bytes_a_token[model] = known + FOLLOW * (measured - known)

    def forget(self, program_id: ProgramId) -> None:
        """Drop what is known of a program that is over."""
        self._seen.pop(program_id, None)
