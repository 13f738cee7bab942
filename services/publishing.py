"""How what a core decided gets on the bus, and what of it into the log."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import structlog

from autellix.schemas import subjects, tenants
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import encode
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import CallResult, EngineList, Failed, Finished, MetricsText, ProgramList, ProgramRecord
from autellix.services.bus import Bus, BusDownError
from autellix.services.core import Out

log = structlog.get_logger()

NOTHING: Mapping[str, str] = MappingProxyType({})
OF_PROGRAMS = tuple(subject.rstrip("*") for subject in (subjects.PROGRAM_EVENTS, subjects.CALL_EVENTS))
ANSWERS = (Finished, CallResult, ProgramList, ProgramRecord, EngineList, MetricsText)
"""What somebody waits for and may grow beyond what the bus carries."""


async def publish(bus: Bus, out: Out, ids: Mapping[str, str] = NOTHING) -> None:
    """Publish one message; what cannot be carried is logged, and who waits for it gets a failure in its place.

    What happens in a tenant's program is said on the tenant's subjects, too.

    Args:
        bus: Where to.
        out: The message.
        ids: What the message that it answers names, for the log.
    """
    trace: str = getattr(getattr(out.message, "call", None), "trace", "")
    try:
        data = encode(out.message, as_json=out.as_json)
        await bus.publish(out.subject, data, trace=trace)
        if tenant := _concerned(out):
            await bus.publish(tenants.subject_of(tenant, out.subject), data)
    except (ValueError, BusDownError) as error:
        log.error("not published", subject=out.subject, error=str(error), **{**ids, **ids_of(out.message)})  # noqa: TRY400
        if isinstance(error, ValueError) and isinstance(out.message, ANSWERS):
            await publish(bus, Out(out.subject, _unsent(out.message, error), out.as_json), ids)
    if out.subject.startswith(subjects.PROGRAM_EVENTS.rstrip("*")):
        log.info(str(out.message.__struct_config__.tag), **ids_of(out.message))


def _concerned(out: Out) -> str:
    """Return the tenant whose program an event is about."""
    if not out.subject.startswith(OF_PROGRAMS):
        return tenants.NOBODY
    return tenants.tenant_of(getattr(out.message, "program_id", ProgramId("")))


def _unsent(message: Any, error: ValueError) -> Failed:
    text = f"The answer cannot be sent: {error}."
    body = ErrorBody(message=text, type="server_error", code="answer_not_sent")
    return Failed(status=500, error=body, call_id=getattr(message, "call_id", None))


def ids_of(message: Any) -> dict[str, str]:
    """Return the ids that a message names, to be bound to log lines."""
    source = getattr(message, "call", message)
    names = ("program_id", "call_id", "engine_id")
    found = {name: getattr(source, name, None) or getattr(message, name, None) for name in names}
    return {name: value for name, value in found.items() if value}


def error_facts(error: ErrorBody) -> dict[str, str]:
    """Return what an error says, to be bound to a log line."""
    facts = {"error": error.message, "code": error.code, "param": error.param}
    return {name: value for name, value in facts.items() if value}
