"""`autellix bench compare`: the systems of a suite on the loads of a suite."""

import argparse
import asyncio
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from autellix.client.bench import comparison_report, floors, machine, report
from autellix.client.bench.compare import Comparison, Finished
from autellix.client.bench.comparison import Outcome, outcome
from autellix.client.bench.load import Load
from autellix.client.bench.results import Results
from autellix.client.bench.suite import Suite, narrowed, read_suite
from autellix.client.cli.bench_replay import WIDTH, NoMatplotlibError

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


def add(kinds: "Verbs") -> None:
    """Define the verb."""
    text = (
        "Start the systems of a suite, replay the suite's loads on each in turn, and compare. Every finished "
        "run is kept in a file; the same command goes on where it stopped. The exit status is 1 when a run failed or a "
        "floor of the suite was missed."
    )
    parser = kinds.add_parser("compare", help="several systems on the same loads", description=text)
    parser.add_argument("suite", type=Path, metavar="SUITE.toml", help="which systems, loads and seeds")
    parser.add_argument("--systems", type=_names, default=(), metavar="A,B", help="only these, and the reference")
    parser.add_argument("--workloads", type=_names, default=(), metavar="A,B", help="only these")
    parser.add_argument("--again", action="store_true", help="forget the runs that are there, and make all of them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers")
    parser.add_argument("--png", type=Path, metavar="DIR", help="draw latency against load, a file a workload")
    parser.set_defaults(run=run)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing, print the tables, write the files, and say what failed."""
    if arguments.png and importlib.util.find_spec("matplotlib") is None:
        raise NoMatplotlibError
    opened = narrowed(read_suite(arguments.suite), arguments.systems, arguments.workloads)
    suite = opened.suite
    floors.check(suite)
    if suite.engine_core:
        machine.divide()
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    say = _say_on(console)
    if arguments.again:
        Results(opened.results, opened.systems).forget()
    finished = asyncio.run(Comparison(opened, say, _progress_on(console)).run())
    found = _outcomes(suite, finished)
    for each in found.values():
        console.print(comparison_report.loads_table(each, suite), comparison_report.ratios_table(each, suite))
    console.print(comparison_report.LEGEND)
    _write(arguments, suite, found, {run.machine for run in finished.runs.values() if run.machine})
    failures = [f"failed: {why.splitlines()[0]}" for why in finished.failures]
    complaints = [*failures, *map(str, floors.missed(suite, found))]
    for complaint in complaints:
        say(complaint)
    return 1 if complaints else 0


def _outcomes(suite: Suite, finished: Finished) -> dict[str, Outcome]:
    """Return what each workload came to of which there is a run."""
    found = [outcome(each, finished.runs, finished.capacities.get(each.name)) for each in suite.workloads]
    return {each.workload.name: each for each in found if each.summaries}


def _write(arguments: argparse.Namespace, suite: Suite, found: dict[str, Outcome], machines: set[str]) -> None:
    if arguments.json:
        comparison_report.write_json(found, suite, machines, arguments.json)
    if arguments.png:
        from autellix.client.bench import comparison_curves  # needs matplotlib

        for each in found.values():
            comparison_curves.draw(each, suite, arguments.png)


def _say_on(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, markup=False, soft_wrap=True)


def _progress_on(console: Console) -> Callable[[Load], AbstractContextManager[Callable[[], None]]]:
    return lambda load: report.progress(load.programs, console)
