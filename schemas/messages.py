"""Every message of the pipeline: requests, answers, hops, frames and events.

A message is a map tagged by its `type`. Times named `*_at_ms` are wall-clock milliseconds since the epoch; durations
end in `_ms`. Optional parts are present with their default, so that a plain reader never meets a missing key.
"""

from autellix.schemas.base import (
    ErrorBody,
    Message,
)
from autellix.schemas.events import (
    CallAdmitted,
    CallCancelled,
    CallEnded,
    CallEvent,
    CallFailed,
    CallFinished,
    CallHeld,
    CallPreempted,
    CallResumed,
    CallRouted,
    CallStarted,
    CallSubmitted,
    DurableLoad,
    EngineDown,
    EngineLoad,
    EngineUp,
    ProgramEnded,
    ProgramExpired,
    ProgramStarted,
)
from autellix.schemas.frames import (
    Accepted,
    CallResult,
    Chunk,
    Failed,
    Finished,
    Placed,
)
from autellix.schemas.hops import (
    AdmittedCall,
    Call,
    DurableCall,
    EngineSeries,
    ForgetCalls,
    GetSeries,
    ProgramFacts,
    ReleasedCall,
    ReleaseHeld,
    RoutedCall,
    SubmittedCall,
)
from autellix.schemas.priorities import Priorities, RankTable
from autellix.schemas.requests import (
    CancelAccepted,
    CancelCalls,
    ControlEngine,
    EndSession,
    GetMetrics,
    GetProgram,
    GetResult,
    ListEngines,
    ListPrograms,
    MetricsText,
    SessionEnded,
    SessionStarted,
    SessionTouched,
    StartSession,
    SubmitCall,
    TouchSession,
)
from autellix.schemas.table import (
    EngineList,
    ProgramList,
    ProgramRecord,
    ThreadRecord,
)

ProgramEvent = ProgramStarted | ProgramEnded | ProgramExpired
ProgramEnd = ProgramEnded | ProgramExpired
CallEnd = CallFinished | CallFailed | CallCancelled
CallTurn = CallHeld | CallStarted | CallPreempted | CallResumed
AnyCallEvent = CallSubmitted | CallAdmitted | CallRouted | CallTurn | CallEnd
EngineEvent = EngineUp | EngineLoad | EngineDown
Event = ProgramEvent | AnyCallEvent | EngineEvent | DurableLoad
Frame = Accepted | Chunk | Finished | Failed
SessionAnswer = SessionStarted | SessionTouched | SessionEnded | CancelAccepted | Failed
TableAnswer = ProgramList | ProgramRecord | EngineList | EngineLoad | MetricsText | Failed
ResultAnswer = CallResult | Failed

__all__ = [
    "Accepted",
    "AdmittedCall",
    "AnyCallEvent",
    "Call",
    "CallAdmitted",
    "CallCancelled",
    "CallEnd",
    "CallEnded",
    "CallEvent",
    "CallFailed",
    "CallFinished",
    "CallHeld",
    "CallPreempted",
    "CallResult",
    "CallResumed",
    "CallRouted",
    "CallStarted",
    "CallSubmitted",
    "CallTurn",
    "CancelAccepted",
    "CancelCalls",
    "Chunk",
    "ControlEngine",
    "DurableCall",
    "DurableLoad",
    "EndSession",
    "EngineDown",
    "EngineEvent",
    "EngineList",
    "EngineLoad",
    "EngineSeries",
    "EngineUp",
    "ErrorBody",
    "Event",
    "Failed",
    "Finished",
    "ForgetCalls",
    "Frame",
    "GetMetrics",
    "GetProgram",
    "GetResult",
    "GetSeries",
    "ListEngines",
    "ListPrograms",
    "Message",
    "MetricsText",
    "Placed",
    "Priorities",
    "ProgramEnd",
    "ProgramEnded",
    "ProgramEvent",
    "ProgramExpired",
    "ProgramFacts",
    "ProgramList",
    "ProgramRecord",
    "ProgramStarted",
    "RankTable",
    "ReleaseHeld",
    "ReleasedCall",
    "ResultAnswer",
    "RoutedCall",
    "SessionAnswer",
    "SessionEnded",
    "SessionStarted",
    "SessionTouched",
    "StartSession",
    "SubmitCall",
    "SubmittedCall",
    "TableAnswer",
    "ThreadRecord",
    "TouchSession",
]
