"""Figure 19 of the paper, 18 in its later version: copying block by block against one copy a call."""

from autellix.services.simulator.figures.drawing import Panel
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure, compared
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import Sweep, Value, at_rates, rate_table, scenarios_of, token_latency_s
from autellix.services.simulator.figures.systems import AUTELLIX, SHAREGPT
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario

RATES = (1.0, 1.2, 1.4)
"""From just past the knee, as the paper's 3.0, 3.5 and 4.0 seem to be."""
PER_BLOCK, BULK = "per_block", "bulk"


def _swaps(result: Result) -> float:
    return float(result.engines[0].counters.swaps)


def _swap_s(result: Result) -> float:
    return result.engines[0].counters.swap_ms / 1000


def _preemptions(result: Result) -> float:
    return float(result.summary.preemptions)


VALUES: dict[str, Value] = {
    "copies": _swaps,
    "time spent copying, s": _swap_s,
    "preemptions": _preemptions,
    "mean s/token": token_latency_s,
}


def sweeps_of(effort: Effort) -> list[Sweep]:
    """Return both ways to copy."""
    return [
        at_rates(SHAREGPT, AUTELLIX, RATES, effort, preemption="swap", swap=way)._replace(label=way)
        for way in (PER_BLOCK, BULK)
    ]


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return scenarios_of(sweeps_of(effort))


def content(effort: Effort, runs: Runs) -> Content:
    """Return copies, their time, and what it does to the latency."""
    sweeps = sweeps_of(effort)
    tables = [rate_table(name, sweeps, runs, value) for name, value in VALUES.items()]
    claims = [
        ["fewer copies", "10 to 18 x", "", _factors(sweeps, runs, _swaps)],
        ["less time copying", "3 to 7 x", "", _factors(sweeps, runs, _swap_s)],
    ]
    panels = [
        Panel(title=name, x_label="programs/s", y_label=name, lines=[each.line(runs, value) for each in sweeps])
        for name, value in VALUES.items()
    ]
    return Content([compared(["one copy a call over one a block"], claims), *tables], panels)


def _factors(sweeps: list[Sweep], runs: Runs, value: Value) -> str:
    per_block, bulk = (each.numbers(runs, value) for each in sweeps)
    factors = [many.mean / few.mean for many, few in zip(per_block, bulk, strict=True) if few.mean]
    return f"{min(factors):.2g} to {max(factors):.2g} x" if factors else "nothing was swapped"


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        f"sharegpt on one engine under Autellix's scheduler, {effort.length}, preempted calls swapped to host memory. "
        "per_block: a copy for each block of 16 tokens; bulk: one copy a call. Both timings are assumed."
    )


FIGURE = Figure("fig19", "swapping block by block and in bulk", setting, scenarios, content)
