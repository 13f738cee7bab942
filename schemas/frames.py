"""What streams to the inbox of the client that submitted a call: accepted, chunks, one finished or failed."""

from typing import Any

import msgspec

from autellix.schemas.base import ErrorBody, Message
from autellix.schemas.events import CallFinished
from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId


class Accepted(Message, tag="accepted", frozen=True, kw_only=True):
    """The call is in the pipeline under these ids."""

    call_id: CallId
    program_id: ProgramId
    """Empty for a durable call whose program is not known before it is executed."""
    thread_id: ThreadId
    durable: bool = False
    """It is kept until it has a result, whoever goes away; `call_id` is the id that its client gave it."""
    replayed: bool = False
    """Its result was there already, and follows."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call runs, and what it waited before it did."""

    engine_id: EngineId
    reason: str
    """Why this engine."""
    wait_ms: float


class Chunk(Message, tag="chunk", frozen=True, kw_only=True):
    """Part of a streamed answer: the objects that one engine step brought."""

    call_id: CallId
    seq: int
    """1, 2, 3, ... without gaps."""
    data: list[Any]
    """The objects of the API's stream, in order."""
    placed: Placed | None = None
    """In the first chunk."""


class Finished(Message, tag="finished", frozen=True, kw_only=True):
    """The last frame of an answered call."""

    call_id: CallId
    seq: int
    """One more than the last chunk's."""
    call: CallFinished
    response: Any = None
    """The API's response; None when it was streamed."""
    placed: Placed | None = None


class Failed(Message, tag="failed", frozen=True, kw_only=True):
    """The last frame of a call that failed, and the answer to any request that could not be served."""

    status: int
    error: ErrorBody
    call_id: CallId | None = None
    retry_after_s: float | None = None
    retry_safe: bool = False
    """Nothing was executed: the same call may be sent again."""


class CallResult(Message, tag="call_result", frozen=True, kw_only=True):
    """What became of a durable call so far."""

    id: str
    submitted_at_ms: float
    waited_ms: float
    """From its submission until its result, or until now."""
    result: Finished | Failed | None = None
    """None: it is not there yet."""
    kept_until_ms: float | None = None
    """When the result will be forgotten."""
