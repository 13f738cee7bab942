"""What the runs of a suite came to: numbers for each system and load, and ratios between systems. Pure.

A ratio is that of runs of the same seed, so of the same programs; then comes the mean over the seeds.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from autellix.client.bench.measures import Run, Summary, summarize
from autellix.client.bench.ratios import Estimate, Point, Ratio, highest_rate, over_seeds, quotient
from autellix.client.bench.schedule import Job, level_name
from autellix.client.bench.suite import Suite, SuiteWorkload

Summaries = Mapping[tuple[str, str], Mapping[int, Summary]]
"""By level and system, of each seed."""


class Outcome(NamedTuple):
    """One workload."""

    workload: SuiteWorkload
    summaries: Summaries
    capacity_per_s: float | None
    """Programs a second; None: it has no shares, or that failed."""

    @property
    def levels(self) -> list[str]:
        """Return its loads as they are shown, the lightest first."""
        return [level_name(level) for level in self.workload.levels]

    def of(self, level: str, system: str) -> Mapping[int, Summary]:
        """Return the numbers of a system at a load, by seed."""
        return self.summaries.get((level, system), {})

    def rate_per_s(self, level: str) -> float:
        """Return the rate of a load that is a share of the capacity; of others, the programs at a time or at once."""
        return float(level) * (self.capacity_per_s or 1.0)


def outcome(workload: SuiteWorkload, runs: Mapping[Job, Run], capacity_per_s: float | None) -> Outcome:
    """Return what the runs of a workload came to; those of others are left aside."""
    summaries: dict[tuple[str, str], dict[int, Summary]] = defaultdict(dict)
    for job, run in runs.items():
        if job.workload == workload.name:
            summaries[job.level, job.system][job.seed] = summarize(run)
    return Outcome(workload, summaries, capacity_per_s)


def ratios(found: Outcome, suite: Suite, system: str, over: str) -> dict[str, Ratio | None]:
    """Return the ratios between two systems, by name; None: not measured.

    They are `latency at LOAD`, `P99 latency at LOAD` and `pace at LOAD` for each load; for programs at a time or at
    once `tokens/s at LOAD` and `makespan at LOAD`; else `rate at FACTORx` for each factor of the suite: at which rates
    both have the latency that is so many times the reference's at its lightest load.
    """
    named: dict[str, Ratio | None] = {}
    for level in found.levels:
        for name, values in METRICS.items():
            if name not in WITHOUT_RATE or not found.workload.shares:
                named[f"{name} at {level}"] = _paired(values(found.of(level, system)), values(found.of(level, over)))
    for factor in suite.factors if found.workload.shares else ():
        named[f"rate at {factor:g}x"] = _rate_ratio(found, factor, suite.reference, system, over)
    return named


def mean_latency(summaries: Mapping[int, Summary]) -> dict[int, float]:
    """Return the mean program-level token latency of each seed that has one; milliseconds."""
    spreads = {seed: summary.token_latency_ms for seed, summary in summaries.items()}
    return {seed: spread.mean for seed, spread in spreads.items() if spread}


def p99_latency(summaries: Mapping[int, Summary]) -> dict[int, float]:
    """Return its 99th percentile."""
    spreads = {seed: summary.token_latency_ms for seed, summary in summaries.items()}
    return {seed: spread.p99 for seed, spread in spreads.items() if spread}


def throughput(summaries: Mapping[int, Summary]) -> dict[int, float]:
    """Return output tokens a second of each seed that has them."""
    rates = {seed: summary.output_tokens_per_s for seed, summary in summaries.items()}
    return {seed: rate for seed, rate in rates.items() if rate}


def makespan(summaries: Mapping[int, Summary]) -> dict[int, float]:
    """Return the seconds from the start to the end of the last program, of each seed without an error."""
    return {seed: summary.took_s for seed, summary in summaries.items() if not summary.errors}


def pace(summaries: Mapping[int, Summary]) -> dict[int, float]:
    """Return how fast the machine was, see `pace.Pace`, during the run of each seed."""
    return {seed: summary.pace_ms for seed, summary in summaries.items() if summary.pace_ms}


METRICS = {
    "latency": mean_latency,
    "P99 latency": p99_latency,
    "tokens/s": throughput,
    "makespan": makespan,
    "pace": pace,
}
"""What is compared at equal load. Where the ratio of paces is far from 1, the others are of two machines."""

WITHOUT_RATE = ("tokens/s", "makespan")
"""What of it is not compared where programs come at a rate: as long as all can serve that, all are equal in it."""


def _paired(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio | None:
    return over_seeds([Estimate(mine[seed] / theirs[seed]) for seed in sorted(mine) if seed in theirs])


def _rate_ratio(found: Outcome, factor: float, reference: str, system: str, over: str) -> Ratio | None:
    estimates = []
    for seed, knee_ms in mean_latency(found.of(found.levels[0], reference)).items():
        mine, theirs = (_curve(found, seed, name) for name in (system, over))
        if mine and theirs:
            bound_ms = factor * knee_ms
            estimates.append(quotient(highest_rate(mine, bound_ms), highest_rate(theirs, bound_ms)))
    return over_seeds(estimates)


def _curve(found: Outcome, seed: int, system: str) -> list[Point]:
    """Return a system's curve at one seed."""
    latencies = {level: mean_latency(found.of(level, system)).get(seed) for level in found.levels}
    return [Point(found.rate_per_s(level), ms) for level, ms in latencies.items() if ms is not None]
