"""When each call of each thread waited and was executed, drawn as text.

One row a thread, all on one time scale; `LEGEND` says what the characters mean.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from math import inf

from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import AnyCallEvent, CallEnded, CallPreempted, CallResumed, CallStarted, CallSubmitted

WAITING, EXECUTING, DISPLACED, NO_CALL = ".", "#", ":", " "
LEGEND = "'.' waits to start, '#' is executed, ':' is displaced by a call that has had less, blank: no call"


@dataclass
class Span:
    """The life of one call; what has not happened is infinitely far away."""

    submitted_ms: float = inf
    started_ms: float = inf
    ended_ms: float = inf
    preempted_ms: set[float] = field(default_factory=set)
    resumed_ms: set[float] = field(default_factory=set)

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
        self._spans: dict[ProgramId, dict[ThreadId, dict[CallId, Span]]] = defaultdict(lambda: defaultdict(dict))

    def add(self, event: AnyCallEvent) -> None:
        """Take in one event."""
        span = self._spans[event.program_id][event.thread_id].setdefault(event.call_id, Span())
        match event:
            case CallSubmitted():
                span.submitted_ms = event.at_ms
            case CallStarted():
                span.started_ms = event.at_ms
            case CallPreempted():
                span.preempted_ms.add(event.at_ms)
            case CallResumed():
                span.resumed_ms.add(event.at_ms)
            case CallEnded():
                span.ended_ms = event.at_ms

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
        spans = [span for threads in self._spans.values() for calls in threads.values() for span in calls.values()]
        begin = min((span.submitted_ms for span in spans), default=0.0)
        end = max((span.ended_ms for span in spans if span.ended_ms < inf), default=begin)
        return begin, max(1.0, (end - begin) / width)

    def column_s(self, width: int) -> float:
        """Return how many seconds one character stands for."""
        return self._scale(width)[1] / 1000


def _mark(spans: Iterable[Span], from_ms: float, to_ms: float) -> str:
    """Return what shows of a thread's calls in a stretch of time."""
    marks = {span.mark(from_ms, to_ms) for span in spans}
    return next((mark for mark in (EXECUTING, DISPLACED, WAITING) if mark in marks), NO_CALL)
