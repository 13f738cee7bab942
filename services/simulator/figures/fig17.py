"""Figure 17: what the time of a token is spent on: execution, scheduler, swapping, waiting."""

from statistics import fmean
from typing import Any

from autellix.services.simulator.figures.curves import Seeds, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import finished
from autellix.services.simulator.figures.systems import (
    AUTELLIX,
    BULK_SWAP,
    LATS,
    MLFQ,
    SHAREGPT,
    VLLM_OPT,
    Workload,
    online,
)
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario

RATES = {SHAREGPT: 1.2, LATS: 0.14}
"""Past the knee of FCFS."""
SYSTEMS = (VLLM_OPT, MLFQ, AUTELLIX)
SCHEDULER_MS = {VLLM_OPT: 0.0, MLFQ: 0.1, AUTELLIX: 0.1}
"""ASSUMED time a step that a policy adds to stock scheduling: the most that ours is meant to take."""
PARTS = ("execution", "scheduler", "swap", "wait")


def run_of(workload: Workload, system: str, seed: int, effort: Effort) -> Scenario:
    """Return one run."""
    other: dict[str, Any] = {**BULK_SWAP, "scheduler_ms": SCHEDULER_MS[system]}
    return online(workload, system, RATES[workload], seed, effort, **other)


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [run_of(w, system, seed, effort) for w in RATES for system in SYSTEMS for seed in effort.seeds]


def parts(result: Result) -> list[float]:
    """Return what a token of a mean program takes, milliseconds, part by part.

    Scheduler and swapping take the shares of a program's steps that they take of all steps of the engine.
    """
    counters = result.engines[0].counters
    service = fmean(row.path_service_ms / row.output_tokens for row in finished(result))
    wait = fmean(row.path_wait_ms / row.output_tokens for row in finished(result))
    scheduler, swap = (service * part / counters.busy_ms for part in (counters.scheduler_ms, counters.swap_ms))
    return [service - scheduler - swap, scheduler, swap, wait]


def content(effort: Effort, runs: Runs) -> Content:
    """Return the parts for each system."""
    tables, panels = [], []
    for workload, rate in RATES.items():
        by_system = [_over_seeds(workload, system, effort, runs) for system in SYSTEMS]
        rows = [
            [system, *(f"{seeds.text()}" for seeds in found)] for system, found in zip(SYSTEMS, by_system, strict=True)
        ]
        title = f"{workload.name} at {rate:g}/s: ms a token"
        tables.append(Table(title=title, columns=["", *PARTS], rows=rows))
        lines = [
            line(part, range(len(SYSTEMS)), [found[place] for found in by_system]) for place, part in enumerate(PARTS)
        ]
        panels.append(
            Panel(title=title, x_label="", y_label="ms/token", lines=lines, kind="stacks", x_names=list(SYSTEMS))
        )
    return Content(tables, panels)


def _over_seeds(workload: Workload, system: str, effort: Effort, runs: Runs) -> list[Seeds]:
    by_seed = [parts(runs.result(run_of(workload, system, seed, effort))) for seed in effort.seeds]
    return [Seeds(values) for values in zip(*by_seed, strict=True)]


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        f"One engine, {effort.length}, past the knee of FCFS, preempted calls swapped in one copy. A policy is assumed "
        f"to add {SCHEDULER_MS[AUTELLIX]:g} ms to each step, which vLLM's asynchronous scheduling would mostly hide."
    )


FIGURE = Figure("fig17", "what the time of a token is spent on", setting, scenarios, content)
