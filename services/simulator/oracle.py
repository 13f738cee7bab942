"""Knows what programs still need: the clairvoyance of SRPT, which no real engine has."""

from autellix.engine.simulation.timing import StepTiming
from autellix.schemas.ids import ProgramId
from autellix.schemas.traces.records import TraceCall, TraceProgram


class Oracle:
    """The work that each live program has left.

    A call's work is the time it takes alone on an engine that has its shared prefix cached.
    """

    def __init__(self, step: StepTiming) -> None:
        self._step = step
        self._remaining_ms: dict[ProgramId, float] = {}

    def remaining_ms(self, program_id: ProgramId) -> float:
        """Return the work of the calls that have not ended."""
        return self._remaining_ms[program_id]

    def started(self, program_id: ProgramId, program: TraceProgram) -> None:
        """Note a new program."""
        self._remaining_ms[program_id] = sum(map(self._work_ms, program.calls))

    def call_ended(self, program_id: ProgramId, call: TraceCall) -> None:
        """Note that a call has done its work."""
        self._remaining_ms[program_id] -= self._work_ms(call)

    def over(self, program_id: ProgramId) -> None:
        """Forget a program, which may never have started."""
        self._remaining_ms.pop(program_id, None)

    def _work_ms(self, call: TraceCall) -> float:
        new_tokens = call.prompt_tokens - call.shared_prefix_tokens
        decode_ms = self._step.step_ms(prefill_tokens=0, decoding_calls=1, context_tokens=call.prompt_tokens)
        return self._step.prefill_token_ms * new_tokens + decode_ms * call.output_tokens
