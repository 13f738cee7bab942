"""Recorded programs made smaller, so that a small engine is loaded as a large one was."""

from typing import Annotated

import msgspec
from msgspec import Meta

from autellix.schemas.traces.records import TraceCall, TraceProgram

Factor = Annotated[float, Meta(gt=0)]


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much smaller than recorded."""

    prompts: Factor = 1.0
    """The tokens of prompts are divided by it,"""
    answers: Factor = 1.0
    """and those of answers by this one."""
    interrupts: Annotated[float, Meta(ge=0)] = 1.0
    """Interrupts are multiplied by it; those of unknown length stay unknown."""

    @property
    def changes(self) -> bool:
        """Tell whether anything is made smaller or larger."""
        return (self.prompts, self.answers, self.interrupts) != (1.0, 1.0, 1.0)


def scaled(program: TraceProgram, scale: Scale) -> TraceProgram:
    """Return a program made smaller; at least one token is left of each prompt and answer.

    A call shares with its source the same part of what its source had as recorded, so the shares that a prefix cache
    can save stay as they are, but for rounding.
    """
    if not scale.changes:
        return program
    whole = {call.id: call for call in program.calls}
    calls: dict[int, TraceCall] = {}
    for call in program.calls:
        prompt = _divided(call.prompt_tokens, scale.prompts)
        source = call.source
        shared = 0
        if source is not None:
            shared = call.shared_prefix_tokens * calls[source].context_tokens // whole[source].context_tokens
        calls[call.id] = msgspec.structs.replace(
            call,
            prompt_tokens=prompt,
            shared_prefix_tokens=min(prompt, shared),
            system_tokens=min(prompt, round(call.system_tokens / scale.prompts)),
            output_tokens=_divided(call.output_tokens, scale.answers),
            interrupt_s=None if call.interrupt_s is None else call.interrupt_s * scale.interrupts,
        )
    return msgspec.structs.replace(program, calls=tuple(calls.values()))


def _divided(tokens: int, factor: float) -> int:
    return max(1, round(tokens / factor))
