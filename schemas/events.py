"""What happened, for whom it may concern. Each event is published on `subjects.event(its type)`."""

from autellix.schemas.base import ErrorBody, Message
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId


class ProgramStarted(Message, tag="program.started", frozen=True, kw_only=True):
    """A program began."""

    program_id: ProgramId
    name: str = ""
    source: str = ""
    """What told that it is one: `started` by its own word, `none` if nobody named it, else what its name came by."""
    agent: str = ""
    """What kind of agent it is, if its client said so when it began."""
    ttl_ms: float | None = None
    """Idle time after which it expires."""
    single_call: bool = False
    """It is over with its one call."""
    at_ms: float


class ProgramEnded(Message, tag="program.ended", frozen=True, kw_only=True):
    """A program ended by its own word, or with its single call."""

    program_id: ProgramId
    at_ms: float


class ProgramExpired(Message, tag="program.expired", frozen=True, kw_only=True):
    """A program was idle for longer than its time to live."""

    program_id: ProgramId
    at_ms: float


class CallEvent(Message, frozen=True, kw_only=True):
    """What every event of a call names."""

    call_id: CallId
    program_id: ProgramId
    thread_id: ThreadId
    at_ms: float


class CallSubmitted(CallEvent, tag="call.submitted", frozen=True, kw_only=True):
    """The session manager took the call in."""

    parents: tuple[CallId, ...] = ()
    api: str
    model: str


class CallAdmitted(CallEvent, tag="call.admitted", frozen=True, kw_only=True):
    """The process table stamped the call with its program's facts."""

    service_ms: float
    critical_path_ms: float


class CallRouted(CallEvent, tag="call.routed", frozen=True, kw_only=True):
    """The load balancer chose an engine."""

    engine_id: EngineId
    reason: str
    becomes_home: bool = False


class CallStarted(CallEvent, tag="call.started", frozen=True, kw_only=True):
    """The engine ran the call's first step."""

    engine_id: EngineId
    wait_ms: float


class CallHeld(CallEvent, tag="call.held", frozen=True, kw_only=True):
    """The call waits in its engine until there is room for its program's cache."""

    engine_id: EngineId
    reason: str


class CallPreempted(CallEvent, tag="call.preempted", frozen=True, kw_only=True):
    """A call of a program that has had less took the call's slot; it waits, and keeps its place."""

    engine_id: EngineId


class CallResumed(CallEvent, tag="call.resumed", frozen=True, kw_only=True):
    """A preempted call runs again."""

    engine_id: EngineId


class CallEnded(CallEvent, frozen=True, kw_only=True):
    """What is known when a call is over, whichever way it ended."""

    engine_id: EngineId | None = None
    arrival_at_ms: float
    service_ms: float = 0.0
    """Duration of the engine steps the call was part of."""
    wait_ms: float = 0.0
    """Time it was in the engine but in no step, preempted time included."""
    held_ms: float = 0.0
    """The part of that before there was room for its program's cache."""
    critical_path_at_arrival_ms: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    queues: tuple[int, ...] = ()
    """The queues it passed through, 0 the best; with the policy `gittins`, the youngest."""


class CallFinished(CallEnded, tag="call.finished", frozen=True, kw_only=True):
    """The call was answered."""


class CallFailed(CallEnded, tag="call.failed", frozen=True, kw_only=True):
    """The call ended in an error."""

    status: int
    error: ErrorBody


class CallCancelled(CallEnded, tag="call.cancelled", frozen=True, kw_only=True):
    """The client, or the end of its program, cancelled the call."""

    reason: str = ""


class EngineUp(Message, tag="engine.up", frozen=True, kw_only=True):
    """An engine worker is ready for calls."""

    engine_id: EngineId
    incarnation: Incarnation
    models: tuple[str, ...]
    policy: str
    slots: int
    kv_tokens: int
    max_model_len: int
    at_ms: float


class EngineLoad(Message, tag="engine.load", frozen=True, kw_only=True):
    """An engine worker's heartbeat."""

    engine_id: EngineId
    incarnation: Incarnation
    models: tuple[str, ...]
    policy: str
    state: str
    """`ready` or `draining`."""
    slots: int
    calls: int
    """Calls the worker has and has not ended."""
    oldest_call_at_ms: float | None = None
    """The arrival of the oldest of them."""
    running: int
    waiting: int
    kv_usage: float
    steps: int
    """Engine steps since start: the proof of progress."""
    kv_tokens: int = 0
    """Tokens that its KV cache holds; 0: it does not say."""
    programs_resident: int = 0
    """Programs whose caches it keeps between their calls."""
    programs_held: int = 0
    """Programs with a call that waits until there is room for the program's cache."""
    held_tokens: int = 0
    """Room that these want beside what is taken."""
    pool_ms: float = 0.0
    """Time to compute as many tokens as the KV cache holds, as measured; 0: not known yet."""
    expected_wait_ms: float = 0.0
    """How long a program that arrives now is likely to be held."""
    at_ms: float


class DurableLoad(Message, tag="durable.load", frozen=True, kw_only=True):
    """The heartbeat of an instance of the service that keeps durable calls."""

    instance: str
    """Another one after each start."""
    available: bool
    """Whether JetStream is there; else new calls are refused, and none are tried."""
    pending: int
    """Calls that have no result yet, with all instances together, when JetStream was last there."""
    trying: int
    """Those that this instance has in the pipeline."""
    tries: int
    """How often it tried a call since its start; as all below."""
    finished: int
    """Results that were kept, answers."""
    failed: int
    """Results that were kept, errors."""
    at_ms: float


class EngineDown(Message, tag="engine.down", frozen=True, kw_only=True):
    """An engine left, by its own word or because its heartbeat stopped."""

    engine_id: EngineId
    incarnation: Incarnation
    reason: str
    at_ms: float
