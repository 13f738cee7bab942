"""Figure 12: mean program token latency over arrival rate, and the throughput at equal latency."""

from collections.abc import Iterable
from typing import NamedTuple

from autellix.services.simulator.figures.curves import Bound, bounds_text
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure, compared
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import (
    Sweep,
    hit_rate,
    rate_panel,
    rate_table,
    scenarios_of,
    sweep,
    throughput_ratio,
    token_latency_s,
    wait_share,
)
from autellix.services.simulator.figures.systems import (
    AUTELLIX,
    BFCL,
    LATS,
    MIXED,
    MLFQ,
    SHAREGPT,
    SHAREGPT_256,
    VLLM,
    VLLM_OPT,
    Workload,
)
from autellix.services.simulator.scenario import Scenario

OTHERS = (VLLM, VLLM_OPT, MLFQ)
SYSTEMS = (*OTHERS, AUTELLIX)
WORKLOADS = (SHAREGPT, SHAREGPT_256, BFCL, LATS, MIXED)
WAIT_SHARE_MAX, HIT_RATE_LOST_MAX = 0.1, 0.05
"""FCFS keeps up while programs wait for less of their response, and no more is lost of the hit rate at light load."""
LEVELS = (1.5, 2.0, 3.0, 5.0, 10.0)
"""Latencies at which throughput is compared, over that of FCFS at its knee."""
SHOWN = (1.5, 5.0)

CLAIMS = {
    (SHAREGPT, VLLM): ("up to 8", "3 to 10 (cache alone)"),
    (SHAREGPT, VLLM_OPT): ("up to 2", "1.5"),
    (SHAREGPT, MLFQ): ("up to 1.5", "1.3"),
    (SHAREGPT_256, VLLM_OPT): ("", "1.00 to 1.03"),
    (BFCL, VLLM): ("up to 8", "3 to 10 (cache alone)"),
    (BFCL, VLLM_OPT): ("up to 2", "1.0 to 1.08"),
    (BFCL, MLFQ): ("up to 1.5", ""),
    (LATS, VLLM): ("up to 5", "3 to 10 (cache alone)"),
    (LATS, VLLM_OPT): ("up to 2", "0.99 to 1.06"),
    (LATS, MLFQ): ("up to 2.5", "below 1"),
    (MIXED, VLLM): ("up to 15", "3 to 10 (cache alone)"),
    (MIXED, VLLM_OPT): ("up to 4 or 5", "1.03 to 1.3"),
    (MIXED, MLFQ): ("up to 5.5", ""),
}
"""Throughput of Autellix over that of the other at equal latency: the paper's, the independent simulation's."""


class Knee(NamedTuple):
    """Where FCFS with prefix cache ceases to keep up."""

    rate: float
    latency_s: float


def sweeps_of(workload: Workload, effort: Effort) -> dict[str, Sweep]:
    """Return the four systems on a workload."""
    return {system: sweep(workload, system, effort) for system in SYSTEMS}


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [each for workload in WORKLOADS for each in scenarios_of(sweeps_of(workload, effort).values())]


def knee(fcfs: Sweep, runs: Runs) -> Knee:
    """Return the last rate of the row up to which programs wait little and find their cache."""
    waits, hits = fcfs.numbers(runs, wait_share), fcfs.numbers(runs, hit_rate)
    keeps_up = [
        wait.mean < WAIT_SHARE_MAX and hits[0].mean - hit.mean < HIT_RATE_LOST_MAX
        for wait, hit in zip(waits, hits, strict=True)
    ]
    last = max(1, [*keeps_up, False].index(False)) - 1
    return Knee(fcfs.rates[last], fcfs.numbers(runs, token_latency_s)[last].mean)


def content(effort: Effort, runs: Runs) -> Content:
    """Return latencies, hit rates, and throughput at equal latency."""
    tables, panels, rows = [], [], []
    for workload in WORKLOADS:
        sweeps = sweeps_of(workload, effort)
        tables.append(rate_table(f"{workload.label}: mean s/token", [*sweeps.values()], runs, token_latency_s))
        tables.append(rate_table(f"{workload.label}: prefix hit rate", [*sweeps.values()], runs, hit_rate))
        panels.append(rate_panel(workload.label, [*sweeps.values()], runs, token_latency_s))
        rows += _throughput(workload, sweeps, runs)
    levels = (f"at {level:g} x" for level in SHOWN)
    columns = ["autellix", "knee, programs/s", "s/token there", *levels]
    return Content([compared(columns, rows), *tables], panels)


def _throughput(workload: Workload, sweeps: dict[str, Sweep], runs: Runs) -> list[list[str]]:
    """Return a row for each other system; ours is the largest ratio at any of the levels."""
    at_knee = knee(sweeps[VLLM_OPT], runs)
    rows = []
    for other in OTHERS:
        ratios = {
            level: throughput_ratio(sweeps[AUTELLIX], sweeps[other], runs, token_latency_s, at_knee.latency_s * level)
            for level in LEVELS
        }
        title = [f"{workload.label}, over {other}", f"{at_knee.rate:g}", f"{at_knee.latency_s:.3g}"]
        shown = [bounds_text(ratios[level]) for level in SHOWN]
        rows.append([*title, *shown, *CLAIMS.get((workload, other), ("", "")), f"up to {_up_to(ratios.values())}"])
    return rows


def _up_to(levels: Iterable[list[Bound | None]]) -> str:
    """Return the largest ratio at any level that is known for every seed."""
    known = [[bound for bound in bounds if bound] for bounds in levels if all(bounds)]
    best = max(known, key=lambda bounds: sum(bound.value for bound in bounds), default=None)
    return bounds_text(best) if best else "-"


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        f"One engine, {effort.length}. vllm: FCFS, no prefix cache, no chunked prefill; vllm-opt: FCFS with both; "
        "mlfq and autellix (PLAS on sharegpt and bfcl, ATLAS on lats and mixed) as vllm-opt. "
        "The number after a workload's name is that of slots. The knee is the last rate at which programs under "
        "vllm-opt wait for less than a tenth of their response and lose less than 0.05 of their hit rate. Beside the "
        "paper stand the rates at which the mean latency is so many times that at the knee, autellix's over the "
        "other's; here: the largest ratio at 1.5, 2, 3, 5 and 10 times."
    )


FIGURE = Figure("fig12", "program token latency over arrival rate", setting, scenarios, content)
