"""`autellix sim fig12` and its like, `autellix sim all`, `autellix sim page`."""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from autellix.services.simulator.figures import FIGURES
from autellix.services.simulator.figures.drawing import Drawing
from autellix.services.simulator.figures.effort import FULL, QUICK, Effort
from autellix.services.simulator.figures.figure import Figure
from autellix.services.simulator.figures.page import fill
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.tables import for_terminal

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "ops/bench/results"
"""In the repository, as the traces are; no part of an installed package."""
SCRATCH = ROOT / ".run/figures"
WIDTH = 120
"""Columns when the output is no terminal."""


def add(verbs: "Verbs") -> None:
    """Define a verb for each figure, one for all, and one for the page."""
    for figure in FIGURES.values():
        _add_figures(verbs, figure.name, [figure], figure.title)
    _add_figures(verbs, "all", list(FIGURES.values()), "all figures")
    parser = verbs.add_parser("page", help="put the figures' tables into the page beside them")
    parser.set_defaults(run=fill_page)


def _add_figures(verbs: "Verbs", name: str, figures: Sequence[Figure], text: str) -> None:
    parser = verbs.add_parser(name, help=text, description=f"Simulate and draw: {text}.")
    parser.add_argument("--quick", action="store_true", help="short runs with one seed, to see that it works")
    parser.add_argument("--seeds", type=_seeds, metavar="N,N", help="in place of the usual seeds")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write PNG and JSON files here")
    parser.add_argument(
        "--runs", type=Path, metavar="DIR", default=SCRATCH / "runs", help="keep runs here, and find those made before"
    )
    parser.add_argument("--jobs", type=_count, default=os.cpu_count(), metavar="N", help="processes at a time")
    parser.set_defaults(run=partial(run, figures))


def _seeds(text: str) -> tuple[int, ...]:
    seeds = tuple(int(part) for part in text.split(","))
    if min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r} are not different numbers from 0 up")
    return seeds


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is below 1")
    return count


def run(figures: Sequence[Figure], arguments: argparse.Namespace) -> None:
    """Make the runs that are missing, draw, print, write.

    Raises:
        ValueError: when something that it takes is not installed.
    """
    if not importlib.util.find_spec("matplotlib"):
        raise ValueError("figures need matplotlib: pip install 'autellix[sim]'")
    effort = _effort(arguments)
    out = arguments.out or (SCRATCH / "quick" if arguments.quick else RESULTS / "figures")
    out.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    runs = Runs(arguments.runs, arguments.jobs)
    _make(runs, figures, effort, console)
    for figure in figures:
        drawing = figure.drawing(effort, runs)
        _print(drawing, console)
        _write(drawing, out)
    console.print(f"Written to {out}.")


def _effort(arguments: argparse.Namespace) -> Effort:
    effort = QUICK if arguments.quick else FULL
    return replace(effort, seeds=arguments.seeds) if arguments.seeds else effort


def _make(runs: Runs, figures: Sequence[Figure], effort: Effort, console: Console) -> None:
    missing = runs.missing(each for figure in figures for each in figure.scenarios(effort))
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(missing))
        for _ in runs.make(missing):
            progress.advance(task)


def _print(drawing: Drawing, console: Console) -> None:
    console.rule(f"{drawing.figure}: {drawing.title}", align="left")
    console.print(drawing.setting)
    for table in drawing.tables:
        console.print(for_terminal(table))


def _write(drawing: Drawing, out: Path) -> None:
    from autellix.services.simulator.figures.plots import draw  # here, since it needs an extra: see `run`

    (out / f"{drawing.figure}.json").write_bytes(drawing.as_json())
    draw(drawing, out / f"{drawing.figure}.png")


def fill_page(_arguments: argparse.Namespace) -> None:
    """Put the tables of all figures that a page names into it, page by page."""
    names = [name for page in sorted(RESULTS.glob("*.md")) for name in fill(page, RESULTS / "figures")]
    Console().print(f"Filled in {', '.join(names)}.")
