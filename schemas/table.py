"""The records that services keep and show: the process table (paper section 4.2.1) and the engines."""

import msgspec

from autellix.schemas.base import Message
from autellix.schemas.events import EngineLoad
from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId


class ThreadRecord(msgspec.Struct, kw_only=True):
    """What the process table knows of one thread (paper section 4.2.1)."""

    thread_id: ThreadId
    calls: int = 0
    arrival_at_ms: float = 0.0
    """Arrival of its last call."""
    wait_ms: float = 0.0
    service_ms: float = 0.0
    live_call: CallId | None = None


class ProgramRecord(msgspec.Struct, tag_field="type", tag="program", kw_only=True):
    """One row of the process table (paper section 4.2.1)."""

    program_id: ProgramId
    name: str = ""
    source: str = ""
    """What told whose its calls are; see `ProgramStarted`."""
    tenant: str = ""
    """Whose program it is; empty without tenants."""
    kind: str = ""
    """What kind of agent it is: the client's word for it, or a hash of its system prompt."""
    state: str = "running"
    """`running`, `ended` or `expired`."""
    started_at_ms: float
    ended_at_ms: float | None = None
    service_ms: float = 0.0
    """Sum of the service times of its completed calls: the priority of PLAS."""
    critical_path_ms: float = 0.0
    """Longest chain of service times seen: the priority of ATLAS."""
    waiting_ms: float = 0.0
    """Sum of the times its calls waited."""
    busy_ms: float = 0.0
    """Wall time with at least one live call; the rest of the program's life it was interrupted."""
    calls: int = 0
    live_calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    queue: int | None = None
    """The queue that its last call was in when it ended, 0 the best; with the policy `gittins`, the youngest."""
    engines: list[EngineId] = msgspec.field(default_factory=list)
    home_engine: EngineId | None = None
    threads: dict[ThreadId, ThreadRecord] = msgspec.field(default_factory=dict)
    last_arrival_at_ms: float | None = None
    last_completion_at_ms: float | None = None


class ProgramList(Message, tag="program_list", frozen=True, kw_only=True):
    """The process table, oldest program first."""

    programs: list[ProgramRecord]
    at_ms: float


class EngineList(Message, tag="engine_list", frozen=True, kw_only=True):
    """The engines in rotation, with their last heartbeat."""

    engines: list[EngineLoad]
