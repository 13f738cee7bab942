"""One system at several arrival rates, and what its runs say."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from autellix.schemas.spread import Spread
from autellix.services.simulator.figures.curves import Bound, Seeds, crossing, line, ratio
from autellix.services.simulator.figures.drawing import Line, Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.systems import Workload, online
from autellix.services.simulator.results import ProgramRow, Result, Summary
from autellix.services.simulator.scenario import Scenario

Value = Callable[[Result], float]
UNFINISHED = float("inf")


class Sweep(NamedTuple):
    """One system at several arrival rates."""

    label: str
    rates: tuple[float, ...]
    scenarios: tuple[tuple[Scenario, ...], ...]
    """For each rate one of each seed."""

    def numbers(self, runs: Runs, value: Value) -> list[Seeds]:
        """Return a number of the runs at each rate."""
        return [Seeds(tuple(value(runs.result(each)) for each in seeds)) for seeds in self.scenarios]

    def line(self, runs: Runs, value: Value) -> Line:
        """Return a number of the runs over the rates."""
        return line(self.label, self.rates, self.numbers(runs, value))

    def crossings(self, runs: Runs, value: Value, level: float) -> list[Bound]:
        """Return, for each seed, the rate at which a number reaches `level`."""
        curves = zip(*(seeds.values for seeds in self.numbers(runs, value)), strict=True)
        return [crossing(self.rates, curve, level) for curve in curves]


def sweep(workload: Workload, system: str, effort: Effort, **other: Any) -> Sweep:
    """Return a system at the rates of a workload."""
    return at_rates(workload, system, workload.rates_of(system), effort, **other)


def at_rates(workload: Workload, system: str, rates: Sequence[float], effort: Effort, **other: Any) -> Sweep:
    """Return a system at these rates, thinned as the effort says."""
    rates = effort.thin(tuple(rates))
    scenarios = (
        tuple(online(workload, system, rate, seed, effort, **other) for seed in effort.seeds) for rate in rates
    )
    return Sweep(system, rates, tuple(scenarios))


def scenarios_of(sweeps: Iterable[Sweep]) -> list[Scenario]:
    """Return all runs of some sweeps."""
    return [scenario for each in sweeps for seeds in each.scenarios for scenario in seeds]


def rate_table(title: str, sweeps: Sequence[Sweep], runs: Runs, value: Value) -> Table:
    """Return a row for each arrival rate and a column for each sweep."""
    rates = sorted({rate for each in sweeps for rate in each.rates})
    cells = {each.label: dict(zip(each.rates, each.numbers(runs, value), strict=True)) for each in sweeps}
    rows = [[f"{rate:g}", *(_cell(cells[each.label].get(rate)) for each in sweeps)] for rate in rates]
    return Table(title=title, columns=["programs/s", *(each.label for each in sweeps)], rows=rows)


def _cell(seeds: Seeds | None) -> str:
    return seeds.text() if seeds else ""


def token_latency_s(result: Result) -> float:
    """Return the mean program-level token latency, seconds a token."""
    return _of_finished(result.summary, lambda spread: spread.mean)


def token_latency_p95_s(result: Result) -> float:
    """Return its 95th percentile over programs."""
    return _of_finished(result.summary, lambda spread: spread.p95)


def token_latency_p99_s(result: Result) -> float:
    """Return its 99th percentile over programs."""
    return _of_finished(result.summary, lambda spread: spread.p99)


def _of_finished(summary: Summary, value: Callable[[Spread], float]) -> float:
    if summary.limit_hit or summary.ms_per_token is None:
        return UNFINISHED
    return value(summary.ms_per_token) / 1000


def finished(result: Result) -> list[ProgramRow]:
    """Return the measured programs that finished."""
    return [row for row in result.programs if row.outcome == "finished"]


def wait_share(result: Result) -> float:
    """Return the mean share of the response that programs waited for."""
    return result.summary.wait_share.mean if result.summary.wait_share else UNFINISHED


def hit_rate(result: Result) -> float:
    """Return the share of prompt tokens that were found in the prefix cache."""
    return result.summary.prefix_hit_rate


def output_tokens_per_s(result: Result) -> float:
    """Return the throughput of tokens over the whole run."""
    return result.summary.output_tokens_per_s


def response_s(result: Result) -> float:
    """Return the mean response of programs, interrupts left out."""
    summary = result.summary
    return UNFINISHED if summary.limit_hit or summary.response_ms is None else summary.response_ms.mean / 1000


def rate_panel(title: str, sweeps: Sequence[Sweep], runs: Runs, value: Value) -> Panel:
    """Return the axes of a latency, seconds a token, over the arrival rate."""
    lines = [each.line(runs, value) for each in sweeps]
    return Panel(title=title, x_label="programs/s", y_label="s/token", lines=lines, y_log=True)


def throughput_ratio(ours: Sweep, theirs: Sweep, runs: Runs, value: Value, level: float) -> list[Bound | None]:
    """Return, for each seed, how much more often programs may arrive in one sweep until `value` reaches `level`."""
    pair = (each.crossings(runs, value, level) for each in (ours, theirs))
    return [ratio(over, under) for over, under in zip(*pair, strict=True)]
