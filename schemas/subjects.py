"""Every NATS subject, spelled once. All but `autellix.internal.>` are a public contract."""

import re
from typing import Final

from autellix.schemas.ids import EngineId
from autellix.schemas.messages import Event

SESSIONS_START: Final = "autellix.sessions.start"
SESSIONS_TOUCH: Final = "autellix.sessions.touch"
SESSIONS_END: Final = "autellix.sessions.end"

CALLS_SUBMIT: Final = "autellix.calls.submit"
CALLS_CANCEL: Final = "autellix.calls.cancel"
CALLS_RESULT: Final = "autellix.calls.result"

PROGRAMS_LIST: Final = "autellix.programs.list"
PROGRAMS_GET: Final = "autellix.programs.get"

ENGINES_LIST: Final = "autellix.engines.list"

METRICS_GET: Final = "autellix.metrics.get"

PROGRAM_EVENTS: Final = "autellix.events.program.*"
PROGRAM_ENDS: Final = ("autellix.events.program.ended", "autellix.events.program.expired")
CALL_EVENTS: Final = "autellix.events.call.*"
CALL_ENDS: Final = ("autellix.events.call.finished", "autellix.events.call.failed", "autellix.events.call.cancelled")
CALL_SUBMITTED_EVENT: Final = "autellix.events.call.submitted"
CALL_ROUTED_EVENT: Final = "autellix.events.call.routed"
CALL_STARTED_EVENT: Final = "autellix.events.call.started"
ENGINE_EVENTS: Final = "autellix.events.engine.*"
DURABLE_EVENTS: Final = "autellix.events.durable.*"

EVENT_STREAM: Final = "AUTELLIX_EVENTS"
"""The JetStream stream that keeps every event but the heartbeats `engine.load` and `durable.load`."""
KEPT_EVENTS: Final = (PROGRAM_EVENTS, CALL_EVENTS, "autellix.events.engine.up", "autellix.events.engine.down")

CALL_SUBMITTED: Final = "autellix.internal.calls.submitted"
CALL_ADMITTED: Final = "autellix.internal.calls.admitted"
CALL_RELEASED: Final = "autellix.internal.calls.released"
CALL_CANCEL: Final = "autellix.internal.calls.cancel"
CALL_DURABLE: Final = "autellix.internal.calls.durable"
CALL_QUEUED: Final = "autellix.internal.durable.queued"
"""What is published here JetStream keeps until it is done: a subject of its own, for a work queue takes in all."""
PRIORITIES: Final = "autellix.internal.priorities"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def event(message: Event) -> str:
    """Return the subject on which an event is published: its message tag says it."""
    return f"autellix.events.{message.__struct_config__.tag}"


def engine_calls(engine_id: EngineId) -> str:
    """Return the subject on which one engine worker receives its calls."""
    return f"autellix.internal.engines.{token(engine_id)}.calls"


def engine_release(engine_id: EngineId) -> str:
    """Return the subject on which one engine worker is asked to give held calls back."""
    return f"autellix.internal.engines.{token(engine_id)}.release"


def engine_forget(engine_id: EngineId) -> str:
    """Return the subject on which one engine worker is told which calls are not its any more."""
    return f"autellix.internal.engines.{token(engine_id)}.forget"


def engine_series(engine_id: EngineId) -> str:
    """Return the subject on which one engine worker is asked for its engine's own series."""
    return f"autellix.internal.engines.{token(engine_id)}.series"


def engine_control(engine_id: EngineId) -> str:
    """Return the public subject on which one engine worker takes orders."""
    return f"autellix.engines.{token(engine_id)}.control"


def token(text: str) -> str:
    """Return `text` if it may stand as one token of a subject.

    Raises:
        ValueError: when it holds anything but letters, digits, `_` and `-`, or is empty or longer than 64 characters.
    """
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"not a valid name (letters, digits, '_' and '-', at most 64): {text[:80]!r}")
    return text
