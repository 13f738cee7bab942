"""What clients ask for, and the short answers."""

from typing import Any

from autellix.schemas.base import Message
from autellix.schemas.ids import CallId, ProgramId, ThreadId


class StartSession(Message, tag="start_session", frozen=True, kw_only=True):
    """Begin a program. Answered by `SessionStarted`."""

    name: str = ""
    """A label for people; never used as a key."""
    agent: str = ""
    """What kind of agent this is: programs of one kind are expected to be alike, and are learnt from together.

    Absent: the system prompt and the model of the first call stand for it.
    """
    ttl_ms: float | None = None
    """Idle time after which the program expires; the session manager's setting if absent."""


class SessionStarted(Message, tag="session_started", frozen=True, kw_only=True):
    """A program exists and may submit calls."""

    program_id: ProgramId
    ttl_ms: float


class TouchSession(Message, tag="touch_session", frozen=True, kw_only=True):
    """Keep an idle program from expiring. Answered by `SessionTouched`."""

    program_id: ProgramId


class SessionTouched(Message, tag="session_touched", frozen=True, kw_only=True):
    """The program's idle time starts anew."""

    program_id: ProgramId
    ttl_ms: float


class EndSession(Message, tag="end_session", frozen=True, kw_only=True):
    """End a program and cancel what it still runs. Answered by `SessionEnded`; ending twice is harmless."""

    program_id: ProgramId
    """Its id, or the name that its client gave it."""


class SessionEnded(Message, tag="session_ended", frozen=True, kw_only=True):
    """The program is over."""

    program_id: ProgramId


class SubmitCall(Message, tag="submit_call", frozen=True, kw_only=True):
    """Submit one LLM call. Answered on the reply inbox by frames: accepted, chunks, then one finished or failed."""

    body: dict[str, Any]
    """The OpenAI request as the API named by `api` defines it."""
    program_id: ProgramId | None = None
    """Absent: see `session`."""
    session: str | None = None
    """A name of the client's own choice for its program; the first call with it starts the program.

    With neither this nor `program_id` the call is a program of its own. The id of a live program names that program.
    """
    source: str = ""
    """What told whose call it is, one of `identity.SOURCES`, for the record of a program that begins with it."""
    agent: str = ""
    """As in `StartSession`, for a program that begins with this call; later ones change nothing."""
    thread_id: ThreadId | None = None
    parents: tuple[CallId, ...] = ()
    """The calls whose answers this one needed."""
    api: str = "/v1/chat/completions"
    deadline_ms: float | None = None
    """Time from submission after which the call is cancelled and fails with status 504."""
    durable: bool = False
    """Execute it to one result, through the death of every process. It needs an `id`, and cannot be streamed.

    The same `id` again, with the same `api` and `body`, is the same call: it is not executed again, and whoever asks
    gets its answer. Another body under that id is refused with 409.
    """
    id: str | None = None
    """Of a durable call: an id of the client's own choice, by which its result can be asked for."""


class GetResult(Message, tag="get_result", frozen=True, kw_only=True):
    """Ask for a durable call. Answered by `CallResult`; 404 if there is none of that id, or its result has expired."""

    id: str


class CancelCalls(Message, tag="cancel_calls", frozen=True, kw_only=True):
    """Cancel one call, or every call of a program. Answered by `CancelAccepted`; cancelling twice is harmless."""

    call_id: CallId | None = None
    program_id: ProgramId | None = None
    """Without a `call_id`: its calls that are live now. The program goes on."""


class CancelAccepted(Message, tag="cancel_accepted", frozen=True, kw_only=True):
    """The order to cancel is on its way to the engines; each call ends in its own terminal frame."""


class ListPrograms(Message, tag="list_programs", frozen=True, kw_only=True):
    """Ask for the process table. Answered by `ProgramList`."""

    include_ended: bool = True
    ended_max: int | None = None
    """Of those that ended, the last so many; None: all that are kept."""
    running_max: int | None = None
    """Of those that run, the youngest so many; None: all."""
    with_threads: bool = True


class GetProgram(Message, tag="get_program", frozen=True, kw_only=True):
    """Ask for one program. Answered by `ProgramRecord`."""

    program_id: ProgramId
    """Its id, or the name that its client gave it: the last program of that name."""


class ListEngines(Message, tag="list_engines", frozen=True, kw_only=True):
    """Ask for the engines in rotation. Answered by `EngineList`."""


class GetMetrics(Message, tag="get_metrics", frozen=True, kw_only=True):
    """Ask for all metrics. Answered by `MetricsText`."""


class MetricsText(Message, tag="metrics_text", frozen=True, kw_only=True):
    """All metrics: those of the programs and calls, and those that the engines keep themselves."""

    text: str
    """In Prometheus's text format."""


class ControlEngine(Message, tag="control_engine", frozen=True, kw_only=True):
    """Order an engine to drain (finish what it has, take nothing new) or to resume. Answered by `EngineLoad`."""

    action: str
