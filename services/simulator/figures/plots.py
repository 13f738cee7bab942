"""Draws the panels of a figure as a PNG file. The one place that knows matplotlib."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from autellix.services.simulator.figures.drawing import Drawing, Line, Panel

PANELS_A_ROW = 4
PANEL_INCHES = (4.2, 3.4)
SPAN_COLORS = ("tab:blue", "tab:red", "tab:gray")
Array = npt.NDArray[np.float64]
GROUP_WIDTH = 0.8
"""Of the bars at one place; 1 is the distance to the next."""


def draw(drawing: Drawing, file: Path) -> None:
    """Write a figure; error bars reach from the least seed to the greatest."""
    columns = min(len(drawing.panels), PANELS_A_ROW)
    rows = -(-len(drawing.panels) // PANELS_A_ROW)
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    figure.suptitle(f"{drawing.figure}: {drawing.title}", fontsize="medium", wrap=True)
    for place, panel in enumerate(drawing.panels, 1):
        _draw_panel(figure.add_subplot(rows, columns, place), panel)
    FigureCanvasAgg(figure)
    figure.savefig(file, metadata={"Software": None})


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.kind == "lines":
        for line in panel.lines:
            x, y, errors = _arrays(line)
            axes.errorbar(x, y, errors, label=line.label, marker="o", markersize=3, capsize=2)
    elif panel.kind == "spans":
        _draw_spans(axes, panel)
    else:
        _draw_bars(axes, panel)
    if panel.y_log:
        axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")


def _draw_spans(axes: Axes, panel: Panel) -> None:
    for line, color in zip(panel.lines, SPAN_COLORS, strict=False):
        _, y, _ = _arrays(line)
        low, high = (np.array(values, dtype=float) for values in (line.low, line.high))
        axes.hlines(y, low, high, label=line.label, linewidth=2, colors=color)


def _draw_bars(axes: Axes, panel: Panel) -> None:
    stacked = panel.kind == "stacks"
    width = GROUP_WIDTH / (1 if stacked else len(panel.lines))
    below = np.zeros(len(panel.x_names))
    for number, line in enumerate(panel.lines):
        x, y, errors = _arrays(line)
        shift = 0.0 if stacked else (number - (len(panel.lines) - 1) / 2) * width
        places = x.astype(int)
        axes.bar(x + shift, y, width, below[places], yerr=errors, label=line.label, capsize=2)
        if stacked:
            below[places] += y
    axes.set_xticks(range(len(panel.x_names)), panel.x_names, fontsize="small")


def _arrays(line: Line) -> tuple[Array, Array, Array]:
    """Return x, y, and how far the seeds reach down and up from y; a run that did not finish is a gap."""
    x, y, low, high = (np.array(values, dtype=float) for values in (line.x, line.y, line.low, line.high))
    return x, y, np.stack([y - low, high - y])
