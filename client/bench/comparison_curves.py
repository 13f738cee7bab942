"""Draws latency against load, a line a system, as PNG files. It needs matplotlib: the extra `sim`."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from autellix.client.bench.comparison import Outcome, mean_latency, p99_latency
from autellix.client.bench.ratios import mean_and_spread
from autellix.client.bench.suite import Suite

PANEL_INCHES = (4.6, 3.6)
MARKERS = "osv^D<>PX*"
PANELS = {"mean": mean_latency, "P99": p99_latency}


def draw(found: Outcome, suite: Suite, folder: Path) -> Path:
    """Write a figure of one workload, named for it, and return its path; a bar is the range over the seeds."""
    width, height = PANEL_INCHES
    figure = Figure(figsize=(len(PANELS) * width, height), layout="constrained")
    figure.suptitle(found.workload.name, fontsize="medium")
    for number, name in enumerate(PANELS, start=1):
        axes = figure.add_subplot(1, len(PANELS), number)
        for system, marker in zip(suite.systems, MARKERS * len(suite.systems), strict=False):
            _draw_line(axes, found, system, name, marker)
        axes.set(title=f"{name} token latency, ms", xlabel=_axis(found), yscale="log")
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        axes.grid(visible=True, alpha=0.3)
        _mark_factors(axes, found, suite, name)
    figure.axes[0].legend(fontsize="x-small")
    FigureCanvasAgg(figure)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{found.workload.name}.png"
    figure.savefig(file, metadata={"Software": None})
    return file


def _draw_line(axes: Axes, found: Outcome, system: str, name: str, marker: str) -> None:
    points = [(found.rate_per_s(level), list(PANELS[name](found.of(level, system)).values())) for level in found.levels]
    measured = [(rate, *mean_and_spread(values), values) for rate, values in points if values]
    if not measured:
        return
    rates, means, _, values = zip(*measured, strict=True)
    ranges = [_below_and_above(mean, of_seeds) for mean, of_seeds in zip(means, values, strict=True)]
    below, above = zip(*ranges, strict=True)
    axes.errorbar(rates, means, (below, above), marker=marker, markersize=4, capsize=2, linewidth=1, label=system)


def _below_and_above(mean: float, values: Sequence[float]) -> tuple[float, float]:
    return mean - min(values), max(values) - mean


def _mark_factors(axes: Axes, found: Outcome, suite: Suite, name: str) -> None:
    """Draw the latencies at which rates are compared."""
    knees = list(mean_latency(found.of(found.levels[0], suite.reference)).values())
    if name == "mean" and knees and found.workload.shares:
        for factor in suite.factors:
            axes.axhline(factor * sum(knees) / len(knees), color="grey", linewidth=0.7, linestyle="--")


def _axis(found: Outcome) -> str:
    return "programs/s" if found.workload.shares else found.workload.unit
