"""Figure 5: the share of their time that programs wait, over the load, under FCFS. From the runs of Figure 12."""

from statistics import fmean
from typing import NamedTuple

from autellix.schemas.traces.workloads import arrivals
from autellix.services.simulator.figures.curves import Seeds, interpolated, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure, compared
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import (
    Sweep,
    finished,
    output_tokens_per_s,
    scenarios_of,
    sweep,
    wait_share,
)
from autellix.services.simulator.figures.systems import BFCL, LATS, SHAREGPT, VLLM, VLLM_OPT, Workload
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario

WORKLOADS = (SHAREGPT, BFCL, LATS)
SYSTEMS = (VLLM, VLLM_OPT)
LOADS = (0.5, 0.9)
CLAIMS = {SHAREGPT: ("56.6 %", "80.4 %"), BFCL: ("38.6 %", "87.0 %"), LATS: ("63.5 %", "91.3 %")}
"""The paper's shares at these loads; its Chatbot, ReAct and MCTS."""


class Curve(NamedTuple):
    """One system on one workload."""

    sweep: Sweep
    capacity_per_s: float
    """Programs a second that the engine can bear."""

    @property
    def loads(self) -> list[float]:
        """Return the arrival rates as shares of the capacity."""
        return [rate / self.capacity_per_s for rate in self.sweep.rates]


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return scenarios_of(sweep(workload, system, effort) for workload in WORKLOADS for system in SYSTEMS)


def capacity_per_s(of: Sweep, runs: Runs) -> float:
    """Return the largest throughput of tokens that any rate brought, over the tokens of a mean program."""
    tokens = fmean(
        sum(call.output_tokens for call in arrival.program.calls)
        for scenario in of.scenarios[-1]
        for arrival in arrivals(scenario)
    )
    return max(seeds.mean for seeds in of.numbers(runs, output_tokens_per_s)) / tokens


def idle_share(result: Result) -> float:
    """Return the mean share of the response in no step: waiting, or in the batch while others prefill."""
    return fmean(1 - row.path_service_ms / row.response_ms for row in finished(result))


def content(effort: Effort, runs: Runs) -> Content:
    """Return wait shares over load, and those at the paper's loads."""
    tables, panels, claims = [], [], []
    for workload in WORKLOADS:
        curves = {system: _curve(workload, system, effort, runs) for system in SYSTEMS}
        tables += [_table(f"{workload.name}, {system}", curve, runs) for system, curve in curves.items()]
        lines = [line(name, curve.loads, curve.sweep.numbers(runs, wait_share)) for name, curve in curves.items()]
        panels.append(Panel(title=workload.name, x_label="load", y_label="share of time waiting", lines=lines))
        for load, paper in zip(LOADS, CLAIMS[workload], strict=True):
            ours = "; ".join(f"{name} {_share_at(load, curve, runs)}" for name, curve in curves.items())
            claims.append([f"{workload.name}, load {load:g}", paper, "", ours])
    return Content([compared([""], claims), *tables], panels)


def _curve(workload: Workload, system: str, effort: Effort, runs: Runs) -> Curve:
    of = sweep(workload, system, effort)
    return Curve(of, capacity_per_s(of, runs))


def _table(title: str, curve: Curve, runs: Runs) -> Table:
    waiting, idle = (curve.sweep.numbers(runs, value) for value in (wait_share, idle_share))
    rows = [
        [f"{rate:g}", f"{load:.2f}", waits.text(), idles.text()]
        for rate, load, waits, idles in zip(curve.sweep.rates, curve.loads, waiting, idle, strict=True)
    ]
    return Table(
        title=f"{title}: capacity {curve.capacity_per_s:.3g} programs/s",
        columns=["programs/s", "load", "share waiting", "share in no step"],
        rows=rows,
    )


def _share_at(load: float, curve: Curve, runs: Runs) -> str:
    """Return the share of time waiting at a load between two that were simulated."""
    by_seed = zip(*(seeds.values for seeds in curve.sweep.numbers(runs, wait_share)), strict=True)
    shares = [interpolated(curve.loads, shares, load) for shares in by_seed]
    known = tuple(100 * share for share in shares if share is not None)
    return f"{Seeds(known).text()} %" if len(known) == len(shares) else "-"


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        f"FCFS on one engine, {effort.length}; vllm without prefix cache and chunked prefill, vllm-opt with both. "
        "Load is the arrival rate over the capacity: the largest throughput of output tokens in any run of the row, "
        "over the output tokens of a mean program. "
        "A program waits while a call on the path that determines its end waits."
    )


FIGURE = Figure("fig5", "share of time that programs wait, over load", setting, scenarios, content)
