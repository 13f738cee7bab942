"""Calls that no engine was chosen for yet: one that is lost on its way there gets its end from here.

Patience is counted in ticks of this service, not by the clock: what arrived while it was held up is handled first.
"""

from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId
from autellix.schemas.messages import Call, CallFailed, CancelCalls, Failed
from autellix.services.core import Out, announce

PATIENCE_TICKS = 20
"""Ten seconds at the runner's pace."""

LOST = ErrorBody(
    message="The call was lost on its way to an engine: is the process table or the load balancer down?",
    type="server_error",
    code="not_routed",
)


class Unrouted:
    """The calls between here and the load balancer, the oldest first."""

    def __init__(self) -> None:
        self._ticks = 0
        self._calls: dict[CallId, tuple[Call, int]] = {}

    def add(self, call: Call) -> None:
        """Expect news of a call that was passed on."""
        self._calls[call.call_id] = (call, self._ticks + PATIENCE_TICKS)

    def settle(self, call_id: CallId) -> None:
        """Note that a call was routed or has ended."""
        self._calls.pop(call_id, None)

    def tick(self, now_ms: float) -> list[Out]:
        """Return the ends of the calls that nobody has heard of for too long."""
        self._ticks += 1
        outs: list[Out] = []
        for call, due in list(self._calls.values()):
            if due > self._ticks:
                break
            del self._calls[call.call_id]
            outs.extend(_lost(call, now_ms))
        return outs


def _lost(call: Call, now_ms: float) -> list[Out]:
    """Return the end of a lost call; the order to cancel comes first, should it turn up later after all."""
    failed = CallFailed(
        call_id=call.call_id,
        program_id=call.program_id,
        thread_id=call.thread_id,
        at_ms=now_ms,
        arrival_at_ms=call.arrival_at_ms,
        status=503,
        error=LOST,
    )
    frame = Failed(status=503, error=LOST, call_id=call.call_id, retry_after_s=1.0)
    order = CancelCalls(call_id=call.call_id, program_id=call.program_id)
    return [Out(subjects.CALL_CANCEL, order), announce(failed), Out(call.reply_to, frame, call.reply_json)]
