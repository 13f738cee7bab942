"""Draws how the latencies of runs are distributed, as a PNG file. It needs matplotlib: the extra `sim`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from autellix.client.bench.measures import ProgramRow, Run
from autellix.schemas.spread import percentile

PERCENTS = range(1, 100)
PANEL_INCHES = (4.2, 3.4)


def draw(runs: Sequence[Run], file: Path) -> None:
    """Write a figure with a line for each run: every program that finished, whether measured or not."""
    width, height = PANEL_INCHES
    figure = Figure(figsize=(2 * width, height), layout="constrained")
    figure.suptitle(runs[0].load.title, fontsize="medium", wrap=True)
    _draw_panel(figure.add_subplot(1, 2, 1), "token latency, ms", runs, lambda row: row.ms_per_token)
    _draw_panel(figure.add_subplot(1, 2, 2), "completion, s", runs, lambda row: row.makespan_s)
    FigureCanvasAgg(figure)
    figure.savefig(file, metadata={"Software": None})


def _draw_panel(axes: Axes, title: str, runs: Sequence[Run], value: Callable[[ProgramRow], float]) -> None:
    for run in runs:
        ordered = sorted(value(row) for row in run.rows if not row.error)
        if ordered:
            axes.plot(PERCENTS, [percentile(ordered, percent) for percent in PERCENTS], label=run.system)
    axes.set(title=title, xlabel="percentile of programs", yscale="log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
