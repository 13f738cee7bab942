"""What an engine worker needs of an engine. `vllm_adapter` is the real one, `simulated` the one for load tests."""

from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from autellix.schemas.base import ErrorBody, Message
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import Priorities, ProgramFacts


class EngineCall(NamedTuple):
    """One call as an engine gets it."""

    call_id: CallId
    program_id: ProgramId
    thread_id: ThreadId
    api: str
    body: bytes
    """JSON text, which the session manager has checked."""
    stream: bool
    program: ProgramFacts
    trace: str = ""
    """The span that it is part of, as a W3C `traceparent`; empty: none."""


class Piece(NamedTuple):
    """Part of a streamed answer: OpenAI chunk objects."""

    data: list[Any]


class Answer(NamedTuple):
    """A whole answer: the OpenAI response, or what ended the stream (None)."""

    response: Any


class Refusal(NamedTuple):
    """The engine's own error answer."""

    status: int
    error: ErrorBody


Output = Piece | Answer | Refusal


class Account(NamedTuple):
    """What the scheduler measured for one call; milliseconds and tokens."""

    service_ms: float = 0.0
    wait_ms: float = 0.0
    held_ms: float = 0.0
    """The part of the waiting at the gate."""
    preemptions: int = 0
    queues: tuple[int, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Load(NamedTuple):
    """How busy the engine is."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    steps: int = 0
    programs_resident: int = 0
    """This and what follows is the gate's: see `policy/pressure.py`."""
    programs_held: int = 0
    held_tokens: int = 0
    pool_ms: float = 0.0
    expected_wait_ms: float = 0.0


class EngineInfo(NamedTuple):
    """What an engine is; known once it is up."""

    models: tuple[str, ...]
    policy: str
    slots: int
    kv_tokens: int
    max_model_len: int


class EngineGoneError(RuntimeError):
    """The engine died; nothing more will come of it."""


class Started(msgspec.Struct, tag=True, frozen=True):
    """A call runs for the first time."""

    call_id: CallId
    wait_ms: float


class Preempted(msgspec.Struct, tag=True, frozen=True):
    """A running call waits again."""

    call_id: CallId


class Resumed(msgspec.Struct, tag=True, frozen=True):
    """A preempted call runs again."""

    call_id: CallId


class Held(msgspec.Struct, tag=True, frozen=True):
    """A call that arrived waits until there is room for its program's cache."""

    call_id: CallId
    order: str
    """The policy that orders the held calls, or what else the gate goes by."""
    programs_ahead: int
    """Other programs with a held call that goes first."""
    wanted_tokens: int
    """Room that its program wants, and that nobody claims."""
    free_tokens: int
    where: str = ""
    """Which room is short, where there is a CPU tier."""


Turn = Started | Preempted | Resumed | Held
OnTurn = Callable[[Turn], None]
"""Told when a call begins or ceases to run, other than by its end."""


class ProgramOver(Message, tag="program_over", frozen=True, kw_only=True):
    """A program ended or expired: no further call of it will come."""

    program_id: ProgramId


Notice = ProgramOver | Priorities


class Executor(Protocol):
    """One engine, ready for calls."""

    info: EngineInfo
    on_turn: OnTurn

    def run(self, call: EngineCall) -> AsyncGenerator[Output, None]:
        """Yield the call's pieces, then one answer or refusal; closing the iterator early aborts the call."""
        ...

    async def account(self, call_id: CallId) -> Account:
        """Return what the scheduler measured for a call whose `run` is over, aborted ones included; once."""
        ...

    def tell(self, notice: Notice) -> None:
        """Tell the engine something that concerns no single call; it need not act on it at once."""
        ...

    def load(self) -> Load:
        """Return how busy the engine is.

        Raises:
            EngineGoneError: when the engine died.
        """
        ...

    def series(self) -> str:
        """Return the engine's own series in Prometheus's text format; empty if it keeps none."""
        ...
