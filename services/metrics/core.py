"""What the metrics service knows: the events it hears, folded into numbers.

Rules:
* What is live is a set of ids, never a counter that goes up and down: a lost or repeated event cannot make it drift
  for ever, and an idle system shows zero.
* An event that is heard again changes nothing: what passed while the bus was away is taken in from the stream.
* An end is counted once, and only of what was seen to begin: begun = ended + live.
* Labels are engine ids and outcomes. The ids of programs and calls, and names that clients choose, are never labels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from autellix.schemas.base import Message
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import (
    CallCancelled,
    CallEnd,
    CallFailed,
    CallFinished,
    CallSubmitted,
    DurableLoad,
    EngineDown,
    EngineLoad,
    ProgramEnded,
    ProgramExpired,
    ProgramStarted,
)
from autellix.services.core import Out, Reply
from autellix.services.metrics.durable import DurableNumbers
from autellix.services.metrics.numbers import LABELS_MAX, Begun, Counter, Histogram, Live
from autellix.services.metrics.programs import Program, ProgramNumbers

CALL_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)
CALL_AGE_MAX_MS: Final = 3_600_000.0
LIVE_MAX: Final = 200_000
FORGET_MS: Final = 600_000.0
"""Without a report for this long an engine is not shown any more."""
NO_ENGINE: Final = "none"
"""The label of calls that ended before an engine had them."""


@dataclass(frozen=True)
class EngineReport:
    """The last heartbeat of an engine."""

    load: EngineLoad
    heard_at_ms: float


@dataclass
class Call(Begun):
    """A call that is live."""

    program: Program | None = None
    """None if that was not seen to start."""


class MetricsCore:
    """The numbers, as its public fields; after `silence_s` seconds without a report an engine is not up."""

    def __init__(self, silence_s: float) -> None:
        self._silence_ms = silence_s * 1000
        self.programs = ProgramNumbers(LIVE_MAX)
        self.calls_submitted = 0
        self.calls_live = Live[Call](count_max=LIVE_MAX, age_max_ms=CALL_AGE_MAX_MS)
        self.calls_finished = Counter()
        """By engine, as all below."""
        self.calls_failed = Counter()
        self.calls_cancelled = Counter()
        self.call_service = Histogram(CALL_S)
        self.call_wait = Histogram(CALL_S)
        self.call_duration = Histogram(CALL_S)
        self.prompt_tokens = Counter()
        self.cached_tokens = Counter()
        self.output_tokens = Counter()
        self.preemptions = Counter()
        self.engines: dict[EngineId, EngineReport] = {}
        self.durable = DurableNumbers(self._silence_ms)

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:  # noqa: ARG002 the core's signature
        """Count one event."""
        match message:
            case ProgramStarted():
                self.programs.started(message)
            case ProgramEnded() | ProgramExpired():
                self.programs.ended(message, now_ms)
            case CallSubmitted():
                self._call_submitted(message)
            case CallFinished() | CallFailed() | CallCancelled():
                self._call_ended(message)
            case EngineLoad():
                self._engine_reported(message, now_ms)
            case EngineDown():
                self._engine_down(message)
            case DurableLoad():
                self.durable.reported(message, now_ms)
        return ()

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Forget what must be over."""
        self.calls_live.expire(now_ms)
        self.programs.tick(now_ms)
        self.durable.tick(now_ms)
        for engine_id, report in list(self.engines.items()):
            if now_ms - report.heard_at_ms > FORGET_MS:
                del self.engines[engine_id]
        return ()

    def reporting(self, now_ms: float) -> list[EngineId]:
        """Return the engines that have reported lately."""
        reports = self.engines.items()
        return [engine_id for engine_id, report in reports if now_ms - report.heard_at_ms <= self._silence_ms]

    def _call_submitted(self, event: CallSubmitted) -> None:
        call = Call(event.at_ms)
        if self.calls_live.begin(event.call_id, call):
            self.calls_submitted += 1
            call.program = self.programs.call_submitted(event)

    def _call_ended(self, event: CallEnd) -> None:
        call = self.calls_live.end(event.call_id, event.at_ms)
        if call is None:
            return
        if call.program:
            self.programs.call_ended(call.program, event)
        self._outcome(event).add(event.engine_id or NO_ENGINE)
        self.call_duration.observe_ms(event.engine_id or NO_ENGINE, event.at_ms - event.arrival_at_ms)
        if event.engine_id:
            self._call_ran(event.engine_id, event)

    def _call_ran(self, engine: EngineId, event: CallEnd) -> None:
        self.prompt_tokens.add(engine, event.prompt_tokens)
        self.cached_tokens.add(engine, event.cached_tokens)
        self.output_tokens.add(engine, event.output_tokens)
        self.preemptions.add(engine, event.preemptions)
        self.call_service.observe_ms(engine, event.service_ms)
        self.call_wait.observe_ms(engine, event.wait_ms)

    def _outcome(self, event: CallEnd) -> Counter:
        match event:
            case CallFinished():
                return self.calls_finished
            case CallFailed():
                return self.calls_failed
            case CallCancelled():
                return self.calls_cancelled

    def _engine_reported(self, load: EngineLoad, now_ms: float) -> None:
        if load.engine_id in self.engines or len(self.engines) < LABELS_MAX:
            self.engines[load.engine_id] = EngineReport(load, now_ms)

    def _engine_down(self, event: EngineDown) -> None:
        report = self.engines.get(event.engine_id)
        if report and report.load.incarnation == event.incarnation:
            del self.engines[event.engine_id]
