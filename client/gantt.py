"""A program's calls over time, as the paper's Figure 2 shows them: a trace for Chrome and Perfetto, and a picture.

The picture needs matplotlib: the extra `sim`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autellix.client.timeline import Phase, Span, Timeline
from autellix.schemas.ids import ProgramId

COLOURS = {
    "waiting": "#f2c14e",
    "held": "#c98a2b",
    "executing": "#2a9d8f",
    "preempted": "#e76f51",
    "interrupted": "#d9d9d9",
}
"""What a call, or between its calls the program, does."""
PROGRAM_ROW = "program"
ROW_INCHES = 0.35


def trace_events(timeline: Timeline, program_id: ProgramId, name: str) -> list[dict[str, Any]]:
    """Return a program as Chrome's Trace Event Format has it: a process, with a row a thread; microseconds."""
    rows = [(thread_id, spans) for thread_id, spans in timeline.threads(program_id).items()]
    events: list[dict[str, Any]] = [
        _named("process_name", name or program_id, 0),
        _named("thread_name", PROGRAM_ROW, 0),
    ]
    until_ms = timeline.until_ms
    events += [_slice("interrupted", begin, end, 0, {}) for begin, end in timeline.interruptions(program_id)]
    for row, (thread_id, spans) in enumerate(rows, start=1):
        events.append(_named("thread_name", thread_id, row))
        for call_id, span in spans.items():
            known = {"call_id": call_id, "engine_id": span.engine_id}
            phases = span.phases(until_ms)
            events += [_slice(phase.kind, phase.begin_ms, phase.end_ms, row, known) for phase in phases]
    return events


def _named(kind: str, name: str, row: int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": 1, "tid": row, "args": {"name": name}}


def _slice(kind: str, begin_ms: float, end_ms: float, row: int, known: dict[str, Any]) -> dict[str, Any]:
    begin, duration = round(begin_ms * 1000), round((end_ms - begin_ms) * 1000)
    return {"ph": "X", "name": kind, "cat": "call", "pid": 1, "tid": row, "ts": begin, "dur": duration, "args": known}


def draw(timeline: Timeline, program_id: ProgramId, title: str, file: Path) -> None:
    """Write a picture: a row a thread, and on top when none of them had a call."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    threads = timeline.threads(program_id)
    begin_ms, until_ms = timeline.since_ms, timeline.until_ms
    rows: list[tuple[str, Iterable[Phase]]] = [
        (PROGRAM_ROW, [Phase("interrupted", *gap) for gap in timeline.interruptions(program_id)])
    ]
    rows += [(thread_id, _phases(spans.values(), until_ms)) for thread_id, spans in threads.items()]
    figure = Figure(figsize=(11, 1.6 + ROW_INCHES * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for row, (_, phases) in enumerate(rows):
        for phase in phases:
            bar = [((phase.begin_ms - begin_ms) / 1000, (phase.end_ms - phase.begin_ms) / 1000)]
            axes.broken_barh(bar, (row - 0.4, 0.8), facecolors=COLOURS[phase.kind])
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set(title=title, xlabel="seconds")
    patches = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items()]
    axes.legend(handles=patches, ncols=len(patches), loc="upper center", bbox_to_anchor=(0.5, -0.25), fontsize="small")
    FigureCanvasAgg(figure)
    figure.savefig(file, metadata={"Software": None}, bbox_inches="tight")


def _phases(spans: Iterable[Span], until_ms: float) -> Iterable[Phase]:
    return [phase for span in spans for phase in span.phases(until_ms)]
