"""The call on its way to an engine, each hop adding one fact. Internal: no promise to outsiders."""

import msgspec

from autellix.schemas.base import Message
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.requests import SubmitCall


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One validated LLM call on its way to an engine."""

    call_id: CallId
    program_id: ProgramId
    thread_id: ThreadId
    parents: tuple[CallId, ...] = ()
    api: str
    model: str
    body: bytes
    """The OpenAI request as JSON text."""
    stream: bool
    reply_to: str
    """The client's inbox."""
    reply_json: bool = False
    """The client spoke JSON and is answered in JSON."""
    arrival_at_ms: float
    deadline_at_ms: float | None = None
    trace: str = ""
    """The span that the call is part of, as a W3C `traceparent`; empty: nobody traces it."""


class ProgramFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the process table knows of a program when a call of it arrives."""

    service_ms: float = 0.0
    critical_path_ms: float = 0.0
    waiting_ms: float = 0.0
    home_engine: EngineId | None = None
    prompt_tokens_estimate: int = 0
    kind: str = ""
    """Programs of one kind are expected to be alike; see `SubmittedCall`."""


class SubmittedCall(Message, tag="submitted_call", frozen=True, kw_only=True):
    """Session manager to process table."""

    call: Call
    kind: str = ""
    """The kind of its program: the agent as the client named it, else a hash of the model and system prompt that its
    first call had, else nothing."""


class AdmittedCall(Message, tag="admitted_call", frozen=True, kw_only=True):
    """Process table to load balancer."""

    call: Call
    program: ProgramFacts


class RoutedCall(Message, tag="routed_call", frozen=True, kw_only=True):
    """Load balancer to one engine worker."""

    call: Call
    program: ProgramFacts
    engine_id: EngineId
    incarnation: Incarnation
    reason: str
    moved: bool = False
    """Whether another engine held it and gave it back; it is not given back again."""


class ReleaseHeld(Message, tag="release_held", frozen=True, kw_only=True):
    """Load balancer to one engine worker: give back the calls of a held program; another engine has room."""

    prompt_tokens_max: int
    """If they have more than that it takes longer to compute them elsewhere than to wait."""
    models: tuple[str, ...]
    """What the other engine serves."""
    taker: EngineId | None = None
    """The other engine."""
    asked_at_ms: float = 0.0
    """The time of its heartbeat that this follows from: of several such orders the first counts."""


class ForgetCalls(Message, tag="forget_calls", frozen=True, kw_only=True):
    """Load balancer to one engine worker: these run elsewhere, or have ended; not another word of them."""

    incarnation: Incarnation
    call_ids: tuple[CallId, ...]


class GetSeries(Message, tag="get_series", frozen=True, kw_only=True):
    """Metrics service to one engine worker. Answered by `EngineSeries`."""


class EngineSeries(Message, tag="engine_series", frozen=True, kw_only=True):
    """What an engine counts itself."""

    engine_id: EngineId
    text: str
    """In Prometheus's text format; empty if it keeps none."""


class ReleasedCall(Message, tag="released_call", frozen=True, kw_only=True):
    """Engine worker to load balancer: a call that was held and has not begun, to be routed anew."""

    call: Call
    program: ProgramFacts
    engine_id: EngineId
    """Where it was held."""


class DurableCall(Message, tag="durable_call", frozen=True, kw_only=True):
    """Session manager to durable calls: a call that keeps the rules, to be kept and executed to one result."""

    request: SubmitCall
    tenant: str
    reply_to: str
    """The client's inbox."""
    reply_json: bool = False
    arrival_at_ms: float
    trace: str = ""
