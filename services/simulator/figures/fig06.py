"""Figure 6: head-of-line blocking, waiting over execution by the length of a call and of a program."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from autellix.services.simulator.figures.curves import Seeds, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import finished
from autellix.services.simulator.figures.systems import AUTELLIX, MIXED, MLFQ, SHAREGPT, VLLM_OPT, Workload, online
from autellix.services.simulator.results import CallRow, ProgramRow, Result
from autellix.services.simulator.scenario import Scenario

SYSTEMS = (VLLM_OPT, MLFQ, AUTELLIX)
RATES = {SHAREGPT: 1.2, MIXED: 0.36}
"""Past the knee of FCFS: before it nobody waits."""
Row = CallRow | ProgramRow


class Grouping(NamedTuple):
    """By which length the rows of a result are put together."""

    title: str
    bounds: tuple[int, ...]
    """The last lengths of the groups but one; the last group has no bound."""
    lengths: Callable[[Result], Iterable[tuple[int, Row]]]

    @property
    def names(self) -> list[str]:
        """Return a name for each group."""
        lows = (1, *(bound + 1 for bound in self.bounds))
        return [f"{low}-{high}" if low < high else f"{low}" for low, high in zip(lows, self.bounds, strict=False)] + [
            f"{lows[-1]}+"
        ]

    def ratios(self, result: Result) -> list[float]:
        """Return waiting over execution in each group; 0 for a group without rows."""
        waits, services = [0.0] * len(self.names), [0.0] * len(self.names)
        for length, row in self.lengths(result):
            group = sum(length > bound for bound in self.bounds)
            waits[group] += row.wait_ms
            services[group] += row.service_ms
        return [wait / service if service else 0.0 for wait, service in zip(waits, services, strict=True)]


GROUPINGS = (
    Grouping(
        "calls by decode steps",
        (16, 64, 128, 256, 512),
        lambda result: ((row.output_tokens, row) for row in result.calls),
    ),
    Grouping("programs by calls", (1, 2, 5, 10, 20, 40), lambda result: ((row.calls, row) for row in finished(result))),
)


def run_of(workload: Workload, system: str, seed: int, effort: Effort) -> Scenario:
    """Return the run of one system, its calls kept."""
    return online(workload, system, RATES[workload], seed, effort, keep_calls=True)


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [run_of(w, system, seed, effort) for w in RATES for system in SYSTEMS for seed in effort.seeds]


def content(effort: Effort, runs: Runs) -> Content:
    """Return waiting over execution for both groupings."""
    tables, panels = [], []
    for workload in RATES:
        for grouping in GROUPINGS:
            title = f"{workload.name}: {grouping.title}"
            ratios = {system: _over_seeds(workload, system, grouping, effort, runs) for system in SYSTEMS}
            tables.append(_table(title, grouping.names, ratios))
            lines = [line(system, range(len(groups)), groups) for system, groups in ratios.items()]
            panels.append(
                Panel(
                    title=title,
                    x_label="",
                    y_label="waiting / execution",
                    lines=lines,
                    kind="bars",
                    x_names=grouping.names,
                )
            )
    return Content(tables, panels)


def _over_seeds(workload: Workload, system: str, grouping: Grouping, effort: Effort, runs: Runs) -> list[Seeds]:
    by_seed = [grouping.ratios(runs.result(run_of(workload, system, seed, effort))) for seed in effort.seeds]
    return [Seeds(values) for values in zip(*by_seed, strict=True)]


def _table(title: str, names: list[str], ratios: dict[str, list[Seeds]]) -> Table:
    rows = [[name, *(groups[place].text() for groups in ratios.values())] for place, name in enumerate(names)]
    return Table(title=f"{title}: waiting / execution", columns=["", *ratios], rows=rows)


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    rates = ", ".join(f"{workload.name} at {rate:g}/s" for workload, rate in RATES.items())
    return f"One engine, {effort.length}: {rates}. Each number is the waiting of a group over its service."


FIGURE = Figure("fig6", "head-of-line blocking", setting, scenarios, content)
