"""Calls that no engine was chosen for yet: one that is lost for good gets its end from here.

Before that it is passed on again, in case a service on its way died and came back; those know a call that comes twice.
One that was cancelled is not: an engine that came up since then would not know that, and run it for nobody.
Patience is counted in ticks of this service, not by the clock: what arrived while it was held up is handled first.
"""

from typing import Any

from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import Call, CallCancelled, CallFailed, CancelCalls, Failed
from autellix.services.core import Out, announce

AGAIN_TICKS = frozenset({3, 7, 13, 18})
"""When a call is passed on again: after 1.5 seconds at the runner's pace, 3.5, 6.5 and 9."""
AGAIN_MAX = 1000
"""With more calls than that on their way the services there are behind, not dead: none is sent again."""
PATIENCE_TICKS = 20
"""Ten seconds."""
CANCELLED_TICKS = 3
"""A second and a half: so long an engine that has a cancelled call has time to say how it ended."""

LOST = ErrorBody(
    message="The call was lost on its way to an engine: is the process table or the load balancer down?",
    type="server_error",
    code="not_routed",
)


class Unrouted:
    """The calls between here and the load balancer, the oldest first."""

    def __init__(self) -> None:
        self._ticks = 0
        self._calls: dict[CallId, tuple[Call, Out, int]] = {}
        self._cancelled: dict[CallId, int] = {}
        """Those of them that nobody wants any more, and since when."""

    def add(self, call: Call, passed_on: Out) -> None:
        """Expect news of a call that was passed on in this way; a second word of that changes nothing."""
        known = self._calls.get(call.call_id)
        if known and known[1].subject == passed_on.subject:
            return
        self._calls[call.call_id] = (call, passed_on, self._ticks)

    def settle(self, call_id: CallId) -> None:
        """Note that a call was routed or has ended."""
        self._calls.pop(call_id, None)
        self._cancelled.pop(call_id, None)

    def cancel(self, call_id: CallId) -> None:
        """Note that a call, which may be on its way, is cancelled."""
        if call_id in self._calls:
            self._cancelled.setdefault(call_id, self._ticks)

    def tick(self, now_ms: float) -> list[Out]:
        """Return again those that nobody has heard of for a while, and the ends of those for too long."""
        self._ticks += 1
        outs: list[Out] = []
        for call, passed_on, since in list(self._calls.values()):
            waited = self._ticks - since
            cancelled_at = self._cancelled.get(call.call_id)
            if cancelled_at is not None:
                if self._ticks - cancelled_at >= CANCELLED_TICKS:
                    self.settle(call.call_id)
                    outs.extend(_cancelled(call, now_ms))
            elif waited in AGAIN_TICKS and len(self._calls) <= AGAIN_MAX:
                outs.append(passed_on)
            elif waited >= PATIENCE_TICKS:
                self.settle(call.call_id)
                outs.extend(_lost(call, now_ms))
        return outs


def end_lost(program_id: ProgramId, call_id: CallId, thread_id: ThreadId, now_ms: float) -> CallFailed:
    """Return the end of a call of an earlier life of this service that nobody has told the end of."""
    text = "The end of this call was lost with the services that knew it."
    return CallFailed(
        call_id=call_id,
        program_id=program_id,
        thread_id=thread_id,
        at_ms=now_ms,
        arrival_at_ms=now_ms,
        status=503,
        error=ErrorBody(message=text, type="server_error", code="end_lost"),
    )


def _lost(call: Call, now_ms: float) -> list[Out]:
    """Return the end of a lost call."""
    failed = CallFailed(**_named(call, now_ms), status=503, error=LOST)
    return _end(call, failed, Failed(status=503, error=LOST, call_id=call.call_id, retry_after_s=1.0))


def _cancelled(call: Call, now_ms: float) -> list[Out]:
    """Return the end of a call that was cancelled on its way."""
    reason = "before an engine had it"
    error = ErrorBody(message=f"The call was cancelled: {reason}.", type="cancelled", code="cancelled")
    event = CallCancelled(**_named(call, now_ms), reason=reason)
    return _end(call, event, Failed(status=499, error=error, call_id=call.call_id))


def _named(call: Call, now_ms: float) -> dict[str, Any]:
    return {
        "call_id": call.call_id,
        "program_id": call.program_id,
        "thread_id": call.thread_id,
        "at_ms": now_ms,
        "arrival_at_ms": call.arrival_at_ms,
    }


def _end(call: Call, event: CallFailed | CallCancelled, frame: Failed) -> list[Out]:
    """Return what ends a call; the order to cancel comes first, should it turn up later after all."""
    order = CancelCalls(call_id=call.call_id, program_id=call.program_id)
    return [Out(subjects.CALL_CANCEL, order), announce(event), Out(call.reply_to, frame, call.reply_json)]
