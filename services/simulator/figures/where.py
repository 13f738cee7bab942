"""Where the paper's ratios go on an engine with prefix cache: one condition changed at a time."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import (
    Sweep,
    Value,
    at_rates,
    finished,
    hit_rate,
    rate_panel,
    rate_table,
    response_s,
    scenarios_of,
    sweep,
    token_latency_s,
)
from autellix.services.simulator.figures.systems import (
    AUTELLIX,
    BULK_SWAP,
    LATS,
    MIXED,
    MLFQ,
    SHAREGPT,
    VLLM_OPT,
    Workload,
)
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario

SYSTEMS = (VLLM_OPT, MLFQ, AUTELLIX)
LONGER = 3
LADDERS: dict[str, dict[str, Any]] = {
    "fitted": {},
    "12 queues": {"fit_ladder": False, "queues": 12},
    "4 queues": {"fit_ladder": False, "queues": 4},
}
KV_TOKENS = 400_000
"""Of the default calibration."""


class Condition(NamedTuple):
    """One thing that is changed, and the numbers to look at."""

    title: str
    sweeps: list[Sweep]
    values: dict[str, Value]

    def content(self, runs: Runs) -> Content:
        """Return its tables, and a panel of the latency."""
        tables = [rate_table(f"{self.title}: {name}", self.sweeps, runs, value) for name, value in self.values.items()]
        return Content(tables, [rate_panel(self.title, self.sweeps, runs, token_latency_s)])


def working_set(result: Result) -> float:
    """Return the mean context of all live programs over the KV cache, by Little's law.

    A program counts with the mean prompt of its calls, for as long as it is there.
    """
    held = fmean(row.jct_ms / 1000 * row.prompt_tokens / row.calls for row in finished(result))
    return (result.scenario.rate_per_s or 0.0) * held / KV_TOKENS


LATENCY: dict[str, Value] = {"mean s/token": token_latency_s}
CACHE: dict[str, Value] = {"prefix hit rate": hit_rate, "working set over KV cache": working_set}
JCT: dict[str, Value] = {"mean response, s": response_s}


def conditions(effort: Effort) -> Iterator[Condition]:
    """Yield all conditions."""
    for workload in (SHAREGPT, LATS):
        sweeps = [sweep(workload, system, effort) for system in SYSTEMS]
        yield Condition(f"{workload.name} as in fig12", sweeps, {**CACHE, **JCT})
    for workload in (SHAREGPT, LATS):
        title = f"{workload.name} without prefix cache"
        yield Condition(title, _without_cache(workload, effort), {**LATENCY, **JCT})
    long = replace(effort, arrivals_s=LONGER * effort.arrivals_s)
    sweeps = [at_rates(SHAREGPT, system, (1.0, 1.2), long) for system in SYSTEMS]
    yield Condition(f"sharegpt, {LONGER} times as long", sweeps, {**LATENCY, **CACHE})
    for workload, rates in {SHAREGPT: (1.0, 1.2, 1.4), MIXED: (0.3, 0.36, 0.45)}.items():
        yield Condition(f"{workload.name}, autellix by ladder", _ladders(workload, rates, effort), LATENCY)
    for workload, rates in {LATS: (0.12, 0.14, 0.16), MIXED: (0.3, 0.36, 0.45)}.items():
        yield Condition(f"{workload.name}, autellix by what attained is", _measures(workload, rates, effort), LATENCY)
    sweeps = [at_rates(SHAREGPT, system, (1.0, 1.2, 1.4), effort, **BULK_SWAP) for system in SYSTEMS]
    yield Condition("sharegpt, preempted calls swapped", sweeps, {**LATENCY, "prefix hit rate": hit_rate})


def _without_cache(workload: Workload, effort: Effort) -> list[Sweep]:
    return [at_rates(workload, system, workload.plain_rates, effort, prefix_cache=False) for system in SYSTEMS]


def _ladders(workload: Workload, rates: tuple[float, ...], effort: Effort) -> list[Sweep]:
    return [
        at_rates(workload, AUTELLIX, rates, effort, **ladder)._replace(label=name) for name, ladder in LADDERS.items()
    ]


def _measures(workload: Workload, rates: tuple[float, ...], effort: Effort) -> list[Sweep]:
    return [
        at_rates(workload, AUTELLIX, rates, effort, policy=policy)._replace(label=name)
        for policy, name in {"atlas": "critical path (ATLAS)", "plas": "sum of service (PLAS)"}.items()
    ]


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [each for condition in conditions(effort) for each in scenarios_of(condition.sweeps)]


def content(effort: Effort, runs: Runs) -> Content:
    """Return what each condition does."""
    contents = [condition.content(runs) for condition in conditions(effort)]
    return Content([table for each in contents for table in each.tables], [each.panels[0] for each in contents])


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return f"One engine, {effort.length} unless said otherwise, as in fig12 but for the one condition named."


FIGURE = Figure("where", "where the paper's ratios go", setting, scenarios, content)
