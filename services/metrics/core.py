"""What the metrics service knows: the events it hears, folded into numbers.

Rules:
* What is live is a set of ids, never a counter that goes up and down: a lost or repeated event cannot make it drift
  for ever, and an idle system shows zero.
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
    EngineDown,
    EngineLoad,
    ProgramEnded,
    ProgramExpired,
    ProgramStarted,
)
from autellix.services.core import Out, Reply
from autellix.services.metrics.numbers import LABELS_MAX, Counter, Histogram, Live

CALL_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)
PROGRAM_S: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0)

CALL_AGE_MAX_MS: Final = 3_600_000.0
PROGRAM_AGE_MAX_MS: Final = 48 * 3_600_000.0
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


class MetricsCore:
    """The numbers, as its public fields; after `silence_s` seconds without a report an engine is not up."""

    def __init__(self, silence_s: float) -> None:
        self._silence_ms = silence_s * 1000
        self.programs_started = Counter()
        """By what named them."""
        self.programs_ended = 0
        self.programs_expired = 0
        self.programs_live = Live(count_max=LIVE_MAX, age_max_ms=PROGRAM_AGE_MAX_MS)
        self.program_duration = Histogram(PROGRAM_S)
        """By outcome: `ended` or `expired`."""
        self.calls_submitted = 0
        self.calls_live = Live(count_max=LIVE_MAX, age_max_ms=CALL_AGE_MAX_MS)
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

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:  # noqa: ARG002 the core's signature
        """Count one event."""
        match message:
            case ProgramStarted():
                self.programs_started.add(message.source)
                self.programs_live.begin(message.program_id, message.at_ms)
            case ProgramEnded() | ProgramExpired():
                self._program_ended(message)
            case CallSubmitted():
                self.calls_submitted += 1
                self.calls_live.begin(message.call_id, message.at_ms)
            case CallFinished() | CallFailed() | CallCancelled():
                self._call_ended(message)
            case EngineLoad():
                self._engine_reported(message, now_ms)
            case EngineDown():
                self._engine_down(message)
        return ()

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Forget what must be over."""
        self.calls_live.expire(now_ms)
        self.programs_live.expire(now_ms)
        for engine_id, report in list(self.engines.items()):
            if now_ms - report.heard_at_ms > FORGET_MS:
                del self.engines[engine_id]
        return ()

    def engines_up(self, now_ms: float) -> int:
        """Return how many engines have reported lately."""
        return sum(now_ms - report.heard_at_ms <= self._silence_ms for report in self.engines.values())

    def _program_ended(self, event: ProgramEnded | ProgramExpired) -> None:
        started_at_ms = self.programs_live.end(event.program_id)
        if started_at_ms is None:
            return
        expired = isinstance(event, ProgramExpired)
        self.programs_expired += expired
        self.programs_ended += not expired
        self.program_duration.observe_ms("expired" if expired else "ended", event.at_ms - started_at_ms)

    def _call_ended(self, event: CallEnd) -> None:
        if self.calls_live.end(event.call_id) is None:
            return
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
