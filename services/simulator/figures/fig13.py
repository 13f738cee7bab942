"""Figure 13: the tails of the program token latency, from the runs of Figure 12."""

from autellix.services.simulator.figures import fig12
from autellix.services.simulator.figures.curves import bounds_text
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure, compared
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import (
    Sweep,
    Value,
    rate_panel,
    rate_table,
    throughput_ratio,
    token_latency_p95_s,
    token_latency_p99_s,
)
from autellix.services.simulator.figures.systems import AUTELLIX, BFCL, LATS, MIXED, MLFQ, SHAREGPT, VLLM_OPT

WORKLOADS = (SHAREGPT, BFCL, LATS, MIXED)
TAILS: dict[str, Value] = {"P95": token_latency_p95_s, "P99": token_latency_p99_s}
LEVEL = 5.0
"""Tails are compared where vllm-opt's is so many times that at its knee."""


def content(effort: Effort, runs: Runs) -> Content:
    """Return both tails of each workload, and the throughput at equal tails."""
    tables, panels, claims = [], [], []
    for tail, value in TAILS.items():
        for workload in WORKLOADS:
            sweeps = fig12.sweeps_of(workload, effort)
            title = f"{workload.label}: {tail}, s/token"
            tables.append(rate_table(title, [*sweeps.values()], runs, value))
            panels.append(rate_panel(title, [*sweeps.values()], runs, value))
            ratios = [_ratio(sweeps, other, value, runs) for other in (VLLM_OPT, MLFQ)]
            claims.append([f"{tail}, {workload.label}", "up to 1.7; lower in 7 of 8", "", " and ".join(ratios)])
    return Content([compared(["autellix over vllm-opt and over mlfq"], claims), *tables], panels)


def _ratio(sweeps: dict[str, Sweep], other: str, value: Value, runs: Runs) -> str:
    at_knee = fig12.knee(sweeps[VLLM_OPT], runs).rate
    fcfs = dict(zip(sweeps[VLLM_OPT].rates, sweeps[VLLM_OPT].numbers(runs, value), strict=True))
    level = fcfs[at_knee].mean * LEVEL
    return bounds_text(throughput_ratio(sweeps[AUTELLIX], sweeps[other], runs, value, level))


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        f"The runs of fig12 ({effort.length}). Compared are the rates at which the tail is {LEVEL:g} times what "
        "vllm-opt's is at the knee."
    )


FIGURE = Figure("fig13", "tails of the program token latency", setting, fig12.scenarios, content)
