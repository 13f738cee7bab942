"""Figure 18 of the paper, 20 in its later version: against clairvoyant SRPT, and round robin."""

from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import (
    Sweep,
    at_rates,
    rate_panel,
    rate_table,
    response_s,
    scenarios_of,
    token_latency_s,
)
from autellix.services.simulator.figures.systems import (
    AUTELLIX,
    LATS,
    MLFQ,
    ROUND_ROBIN,
    SHAREGPT,
    SRPT,
    VLLM_OPT,
    Workload,
)
from autellix.services.simulator.scenario import Scenario

WORKLOADS = (SHAREGPT, LATS)
SYSTEMS = (VLLM_OPT, ROUND_ROBIN, MLFQ, AUTELLIX, SRPT)


def sweeps_of(workload: Workload, effort: Effort) -> list[Sweep]:
    """Return all orders on a workload."""
    return [at_rates(workload, system, workload.rates[::2], effort) for system in SYSTEMS]


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [each for workload in WORKLOADS for each in scenarios_of(sweeps_of(workload, effort))]


def content(effort: Effort, runs: Runs) -> Content:
    """Return token latencies and responses."""
    tables, panels = [], []
    for workload in WORKLOADS:
        sweeps = sweeps_of(workload, effort)
        tables.append(rate_table(f"{workload.name}: mean s/token", sweeps, runs, token_latency_s))
        tables.append(rate_table(f"{workload.name}: mean response, s", sweeps, runs, response_s))
        panels.append(rate_panel(workload.name, sweeps, runs, token_latency_s))
    return Content(tables, panels)


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        f"One engine with prefix cache, {effort.length}. SRPT knows what each program still needs; it decides on order "
        "and slots as the others do, so it is no lower bound. Round robin gives turns of 100 ms."
    )


FIGURE = Figure("fig18", "against clairvoyant SRPT", setting, scenarios, content)
