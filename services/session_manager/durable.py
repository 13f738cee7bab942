"""Where durable calls go from here: which program one belongs to is found when it is tried, as an ordinary call."""

from autellix.schemas import subjects
from autellix.schemas.messages import DurableCall, SubmitCall
from autellix.services.core import Out, Reply


def hand_on(request: SubmitCall, now_ms: float, reply: Reply) -> list[Out]:
    """Return a checked call for the service that keeps it, which answers the client."""
    call = DurableCall(
        request=request,
        tenant=reply.tenant,
        reply_to=reply.subject,
        reply_json=reply.as_json,
        arrival_at_ms=now_ms,
        trace=reply.trace,
    )
    return [Out(subjects.CALL_DURABLE, call)]
