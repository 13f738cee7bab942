"""A simulated agent: replays one program of a trace as a client of the pipeline.

Rules:
* A call is submitted when all its parents ended and its interrupt has passed. Each call has an inbox of its own.
* A call that failed and is safe to retry is submitted again; any other failure is that of the program.
* The program's session ends with its last call, or when it failed; calls that still run are then cancelled, and their
  ends are waited for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from autellix.schemas import subjects
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import (
    Accepted,
    CallFinished,
    EndSession,
    Failed,
    Finished,
    SessionEnded,
    SessionStarted,
    StartSession,
    SubmitCall,
)
from autellix.schemas.stream import FrameOrder
from autellix.schemas.traces.records import TraceCall
from autellix.schemas.traces.workloads import Arrival
from autellix.services.simulator.clock import Clock
from autellix.services.simulator.contents import CallContent, ContentStore, Keys
from autellix.services.simulator.virtual_bus import VirtualBus

MODEL = "simulated"
INBOXES = "_INBOX."
SESSION = "session"
TTL_MS = 86_400_000.0
"""The longest that the session manager grants: a program in the simulator never expires."""
RETRY_MS = 1000.0
"""Time to a retry if the failure does not say."""


class Path(NamedTuple):
    """The chain of calls that determined when something happened."""

    interrupts_ms: float = 0.0
    wait_ms: float = 0.0
    service_ms: float = 0.0


class Interrupts(NamedTuple):
    """How long an agent is away from the engine between calls."""

    cap_ms: float
    unknown_ms: float

    def before_ms(self, call: TraceCall) -> float:
        """Return the interrupt between a call's parents and the call."""
        if call.interrupt_s is None:
            return self.unknown_ms if call.parents else 0.0
        return min(call.interrupt_s * 1000, self.cap_ms)


@dataclass
class LiveCall:
    """A call that was submitted and has not ended."""

    call: TraceCall
    path: Path
    """Up to its submission."""
    submitted_at_ms: float
    order: FrameOrder = field(default_factory=FrameOrder)


class EndedCall(NamedTuple):
    """A call that was answered."""

    call: TraceCall
    path: Path
    """Up to its end."""
    submitted_at_ms: float
    event: CallFinished


class Observer(Protocol):
    """Is told how programs go."""

    def started(self, agent: "Agent") -> None:
        """Hear that the program has its id."""
        ...

    def call_ended(self, agent: "Agent", ended: EndedCall) -> None:
        """Hear that a call was answered."""
        ...

    def over(self, agent: "Agent") -> None:
        """Hear that the program ended or failed, and nothing of it is left in the pipeline."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """What all agents of a simulation have in common."""

    clock: Clock
    bus: VirtualBus
    store: ContentStore
    block_tokens: int
    interrupts: Interrupts
    observer: Observer


class Agent:
    """One program."""

    def __init__(
        self, number: int, arrival: Arrival, contents: dict[int, CallContent], surroundings: Surroundings
    ) -> None:
        self.number = number
        self.arrival = arrival
        self.program_id = ProgramId("")
        """Empty until its session starts."""
        self.failed = False
        self._has_session = True
        self.retries = 0
        self.ended: dict[int, EndedCall] = {}
        self._contents = contents
        self._around = surroundings
        self._call_ids: dict[int, CallId] = {}
        self._live: dict[int, LiveCall] = {}
        self._missing = {call.id: len(set(call.parents)) for call in arrival.program.calls}
        """How many parents of each call have not ended."""
        self._children: dict[int, list[TraceCall]] = {}
        for call in arrival.program.calls:
            for parent in dict.fromkeys(call.parents):
                self._children.setdefault(parent, []).append(call)

    @property
    def name(self) -> str:
        """Return the program's name in the trace."""
        return self.arrival.program.program_id

    @property
    def last(self) -> EndedCall | None:
        """Return the call that ended last, so far."""
        return next(reversed(self.ended.values()), None)

    def contexts(self) -> list[Keys]:
        """Return the blocks of its live calls, and of the call that ended last."""
        calls = [live.call for live in self._live.values()] + ([self.last.call] if self.last else [])
        return [self._contents[call.id].keys for call in calls]

    def start(self) -> None:
        """Begin the program."""
        self._send(
            subjects.SESSIONS_START, StartSession(name=self.name, agent=self.arrival.trace, ttl_ms=TTL_MS), SESSION
        )

    def hear(self, message: Any, inbox: str) -> None:
        """Take in what was sent to one of the agent's inboxes; `inbox` is the last token of its name."""
        match message:
            case SessionStarted():
                self.program_id = message.program_id
                self._around.observer.started(self)
                for call in self.arrival.program.calls:
                    if not call.parents:
                        self._submit_later(call, Path())
            case SessionEnded():
                self._session_over()
            case Failed() if inbox == SESSION:
                self.failed = True
                self._session_over()
            case _:
                self._hear_of_call(message, int(inbox))

    def _send(self, subject: str, message: Any, inbox: str) -> None:
        self._around.bus.publish(subject, message, reply=f"{INBOXES}{self.number}.{inbox}")

    def _submit_later(self, call: TraceCall, path: Path) -> None:
        interrupt_ms = self._around.interrupts.before_ms(call)
        path = path._replace(interrupts_ms=path.interrupts_ms + interrupt_ms)
        self._after(interrupt_ms, partial(self._submit, call, path))

    def _after(self, wait_ms: float, action: Callable[[], None]) -> None:
        self._around.clock.at(self._around.clock.now_ms + wait_ms, action)

    def _submit(self, call: TraceCall, path: Path) -> None:
        if self.failed:
            return
        key = f"{self.number}.{call.id}"
        self._around.store[key] = self._contents[call.id]
        self._live[call.id] = LiveCall(call, path, self._around.clock.now_ms)
        body = {
            "model": MODEL,
            "prompt": self._contents[call.id].prompt_text(self._around.block_tokens),
            "max_tokens": call.output_tokens,
            "metadata": {"content": key},
        }
        parents = tuple(self._call_ids[parent] for parent in call.parents)
        request = SubmitCall(program_id=self.program_id, parents=parents, api="/v1/completions", body=body)
        self._send(subjects.CALLS_SUBMIT, request, str(call.id))

    def _hear_of_call(self, frame: Any, call_id: int) -> None:
        live = self._live[call_id]
        match live.order.admit(frame):
            case Accepted() as accepted:
                self._call_ids[call_id] = accepted.call_id
            case Finished() as finished:
                self._call_finished(live, finished.call)
            case Failed() as failure:
                self._call_failed(live, failure)

    def _over(self, live: LiveCall) -> None:
        del self._live[live.call.id]
        del self._around.store[f"{self.number}.{live.call.id}"]

    def _call_finished(self, live: LiveCall, event: CallFinished) -> None:
        self._over(live)
        path = Path(live.path.interrupts_ms, live.path.wait_ms + event.wait_ms, live.path.service_ms + event.service_ms)
        ended = self.ended[live.call.id] = EndedCall(live.call, path, live.submitted_at_ms, event)
        self._around.observer.call_ended(self, ended)
        for child in self._children.get(live.call.id, ()):
            self._missing[child.id] -= 1
            if not self._missing[child.id]:  # this parent is the last one: it determines the child's path
                self._submit_later(child, path)
        if len(self.ended) == len(self.arrival.program.calls):
            self._end_session()

    def _call_failed(self, live: LiveCall, failure: Failed) -> None:
        self._over(live)
        if failure.retry_safe and not self.failed:
            self.retries += 1
            wait_ms = RETRY_MS if failure.retry_after_s is None else failure.retry_after_s * 1000
            self._after(wait_ms, partial(self._submit, live.call, live.path))
        elif self.failed:
            self._finish_if_idle()
        else:
            self.failed = True
            self._end_session()

    def _end_session(self) -> None:
        self._send(subjects.SESSIONS_END, EndSession(program_id=self.program_id), SESSION)

    def _session_over(self) -> None:
        self._has_session = False
        self._finish_if_idle()

    def _finish_if_idle(self) -> None:
        if not (self._has_session or self._live):
            self._around.observer.over(self)
