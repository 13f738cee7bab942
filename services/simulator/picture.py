"""One run as a drawing for people: how its programs fared, and how busy the engines were."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from math import ceil
from statistics import fmean

from autellix.schemas.ids import EngineId
from autellix.schemas.messages import EngineLoad
from autellix.services.simulator.figures.drawing import Drawing, Line, Panel
from autellix.services.simulator.results import Result

PERCENTILES = range(1, 100, 2)
INTERVALS = 50
"""Of the time of a run, to take means of."""


def picture(result: Result) -> Drawing:
    """Return the drawing of a run that kept its heartbeats."""
    finished = [row for row in result.programs if row.outcome == "finished"]
    running = _over_time("running", result, lambda load: load.running)
    waiting = _over_time("waiting", result, lambda load: load.waiting)
    usage = _over_time("in use", result, lambda load: load.kv_usage * 100)
    return Drawing(
        figure="run",
        title=result.title,
        setting="",
        seeds=[result.scenario.seed],
        tables=[],
        panels=[
            _by_percentile("token latency", "ms/token", (row.ms_per_token for row in finished)),
            _by_percentile("share of the response waited", "%", (row.wait_share * 100 for row in finished)),
            _of_engines("calls in an engine", "calls", running, waiting),
            _of_engines("KV cache of an engine", "%", usage),
        ],
    )


def _by_percentile(title: str, unit: str, values: Iterable[float]) -> Panel:
    ordered = sorted(values)
    y = [ordered[ceil(percent / 100 * len(ordered)) - 1] for percent in PERCENTILES] if ordered else []
    line = Line(label="programs", x=[float(percent) for percent in PERCENTILES[: len(y)]], y=[*y], low=[*y], high=[*y])
    return Panel(title=title, x_label="percentile", y_label=unit, lines=[line])


def _of_engines(title: str, unit: str, *lines: Line) -> Panel:
    return Panel(title=f"{title}: mean, least, most", x_label="virtual time, s", y_label=unit, lines=[*lines])


def _over_time(label: str, result: Result, value: Callable[[EngineLoad], float]) -> Line:
    """Return the mean over engines in each interval that has a heartbeat, with the least and the most of any engine."""
    interval_ms = result.summary.virtual_ms / INTERVALS
    heard: defaultdict[int, defaultdict[EngineId, list[float]]] = defaultdict(lambda: defaultdict(list))
    for load in result.loads:
        heard[int(load.at_ms // interval_ms)][load.engine_id].append(value(load))
    means = {number: [fmean(values) for values in engines.values()] for number, engines in sorted(heard.items())}
    return Line(
        label=label,
        x=[(number + 0.5) * interval_ms / 1000 for number in means],
        y=[fmean(engines) for engines in means.values()],
        low=[min(engines) for engines in means.values()],
        high=[max(engines) for engines in means.values()],
    )
