"""What of a call is checked beside the fields of its body."""

from math import inf

from autellix.schemas.ids import CALL_ID_BEGIN
from autellix.schemas.messages import SubmitCall
from autellix.schemas.openai import invalid
from autellix.services.config import SessionManagerSettings

NAME_MAX = 256
PARENTS_MAX = 1024


def check_call(request: SubmitCall, text: bytes, settings: SessionManagerSettings) -> None:
    """Check a call whose body, `text`, keeps the rules of its API.

    Raises:
        InvalidRequestError: 413 for a body that is too large, 400 for anything else that breaks a rule.
    """
    limit = settings.body_bytes_max
    if len(text) > limit:
        raise invalid(f"The body has {len(text)} bytes; the limit is {limit}.", code="body_too_large", status=413)
    check_durable(request)
    if request.deadline_ms is not None and not 0 < request.deadline_ms < inf:
        raise invalid("deadline_ms must be above 0.", param="deadline_ms")
    if len(request.parents) > PARENTS_MAX:
        raise invalid(f"At most {PARENTS_MAX} parents.", param="parents")
    for name in ("session", "thread_id", "program_id", "agent"):
        check_name(getattr(request, name) or "", name)
    for parent in request.parents:
        check_name(parent, "parents")


def check_durable(request: SubmitCall) -> None:
    """Check what a durable call needs, and that no other call has it.

    Raises:
        InvalidRequestError: 400 without a usable id, or for a stream: what was streamed cannot be told again.
    """
    if not request.durable:
        if request.id is not None:
            raise invalid("Only a durable call has an id of its client's choice.", param="id")
        return
    if not request.id or request.id.startswith(CALL_ID_BEGIN):
        raise invalid(f"A durable call needs an id, which does not begin with {CALL_ID_BEGIN!r}.", param="id")
    check_name(request.id, "id")
    if request.body.get("stream"):
        raise invalid("A durable call cannot be streamed.", param="stream", code="unsupported")


def check_name(text: str, param: str) -> None:
    """Check an id or label.

    Raises:
        InvalidRequestError: 400 for one that is too long or holds control characters.
    """
    if len(text) > NAME_MAX or not text.isprintable():
        raise invalid(f"{param} must be at most {NAME_MAX} printable characters.", param=param)
