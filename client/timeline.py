"""When each call of each thread waited and was executed, drawn as text.

One row a thread, all on one time scale; `LEGEND` says what the characters mean.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from math import inf
from typing import NamedTuple

from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId
from autellix.schemas.messages import (
    AnyCallEvent,
    CallEnded,
    CallHeld,
    CallPreempted,
    CallResumed,
    CallRouted,
    CallStarted,
    CallSubmitted,
)

WAITING, EXECUTING, DISPLACED, NO_CALL = ".", "#", ":", " "
LEGEND = "'.' waits to start, '#' is executed, ':' is displaced by a call that has had less, blank: no call"


class Phase(NamedTuple):
    """A stretch of a call's life."""

    kind: str
    """`waiting`, `held` (for room), `executing` or `preempted`."""
    begin_ms: float
    end_ms: float


@dataclass
class Span:
    """The life of one call; what has not happened is infinitely far away."""

    submitted_ms: float = inf
    held_ms: float = inf
    started_ms: float = inf
    ended_ms: float = inf
    preempted_ms: set[float] = field(default_factory=set)
    resumed_ms: set[float] = field(default_factory=set)
    engine_id: EngineId | None = None

    def phases(self, until_ms: float) -> list[Phase]:
        """Return what the call did when, up to `until_ms` if it has not ended; nothing is told of an unknown start."""
        if self.submitted_ms == inf:
            return []
        changes = [(self.submitted_ms, "waiting"), (self.held_ms, "held"), (self.started_ms, "executing")]
        changes += [(at_ms, "preempted") for at_ms in self.preempted_ms]
        changes += [(at_ms, "executing") for at_ms in self.resumed_ms]
        end_ms = min(self.ended_ms, until_ms)
        known = [*sorted(change for change in changes if change[0] < end_ms), (end_ms, "")]
        return [Phase(kind, begin, end) for (begin, kind), (end, _) in pairwise(known) if end > begin]

    def mark(self, from_ms: float, to_ms: float) -> str:
        """Return how the call spent a stretch of time; executing, however short, is what shows."""
        if self.ended_ms <= from_ms:
            return NO_CALL
        if self.started_ms < to_ms:
            return DISPLACED if self._displaced(from_ms, to_ms) else EXECUTING
        return WAITING if self.submitted_ms < to_ms else NO_CALL

    def _displaced(self, from_ms: float, to_ms: float) -> bool:
        """Tell whether the call was displaced all the time; it is preempted and resumed by turns."""
        turns = zip_longest(sorted(self.preempted_ms), sorted(self.resumed_ms), fillvalue=inf)
        return any(preempted <= from_ms and to_ms <= resumed for preempted, resumed in turns)


class Timeline:
    """The calls of all programs, gathered from their events in whatever order these come."""

    def __init__(self) -> None:
        self.now_ms: float | None = None
        """The time, if calls that have not ended are to go on up to it; None: up to the last event."""
        self._spans: dict[ProgramId, dict[ThreadId, dict[CallId, Span]]] = defaultdict(lambda: defaultdict(dict))

    def add(self, event: AnyCallEvent) -> None:
        """Take in one event."""
        span = self._spans[event.program_id][event.thread_id].setdefault(event.call_id, Span())
        match event:
            case CallSubmitted():
                span.submitted_ms = event.at_ms
            case CallHeld():
                span.held_ms = event.at_ms
            case CallRouted():
                span.engine_id = event.engine_id
            case CallStarted():
                span.started_ms = event.at_ms
            case CallPreempted():
                span.preempted_ms.add(event.at_ms)
            case CallResumed():
                span.resumed_ms.add(event.at_ms)
            case CallEnded():
                span.ended_ms = event.at_ms

    def threads(self, program_id: ProgramId) -> Mapping[ThreadId, Mapping[CallId, Span]]:
        """Return the calls of a program, by thread."""
        return self._spans[program_id]

    @property
    def since_ms(self) -> float:
        """When the first call was submitted; 0 without any."""
        return min((span.submitted_ms for span in self._all() if span.submitted_ms < inf), default=0.0)

    @property
    def until_ms(self) -> float:
        """When the last thing happened that is known, or the time."""
        times = [
            at_ms for span in self._all() for at_ms in (span.submitted_ms, span.held_ms, span.started_ms, span.ended_ms)
        ]
        times += [at_ms for span in self._all() for at_ms in span.preempted_ms | span.resumed_ms]
        return self.now_ms or max((at_ms for at_ms in times if at_ms < inf), default=0.0)

    def interruptions(self, program_id: ProgramId) -> list[tuple[float, float]]:
        """Return the stretches between a program's first and last call in which it had none."""
        calls = [span for thread in self._spans[program_id].values() for span in thread.values()]
        until_ms = self.until_ms
        known = sorted((span.submitted_ms, min(span.ended_ms, until_ms)) for span in calls if span.submitted_ms < inf)
        gaps, busy_until = [], inf
        for begin, end in known:
            if begin > busy_until:
                gaps.append((busy_until, begin))
            busy_until = end if busy_until == inf else max(busy_until, end)
        return gaps

    def rows(self, program_id: ProgramId, width: int) -> list[tuple[ThreadId, str]]:
        """Return each thread of a program with its line of `width` characters."""
        begin, step = self._scale(width)
        edges = [begin + step * column for column in range(width + 1)]
        stretches = list(pairwise(edges))
        return [
            (thread_id, "".join(_mark(spans.values(), *stretch) for stretch in stretches))
            for thread_id, spans in self._spans[program_id].items()
        ]

    def _scale(self, width: int) -> tuple[float, float]:
        """Return when the first column begins and how many milliseconds a column stands for."""
        spans = self._all()
        begin = min((span.submitted_ms for span in spans), default=0.0)
        end = max((span.ended_ms for span in spans if span.ended_ms < inf), default=begin)
        return begin, max(1.0, (end - begin) / width)

    def _all(self) -> list[Span]:
        return [span for threads in self._spans.values() for calls in threads.values() for span in calls.values()]

    def column_s(self, width: int) -> float:
        """Return how many seconds one character stands for."""
        return self._scale(width)[1] / 1000


def _mark(spans: Iterable[Span], from_ms: float, to_ms: float) -> str:
    """Return what shows of a thread's calls in a stretch of time."""
    marks = {span.mark(from_ms, to_ms) for span in spans}
    return next((mark for mark in (EXECUTING, DISPLACED, WAITING) if mark in marks), NO_CALL)
