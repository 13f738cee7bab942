"""Figure 15: the arrival rate that engines bear within a latency, by their number."""

from autellix.services.simulator.figures.curves import Seeds, bounds_text, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import Sweep, at_rates, rate_table, scenarios_of, token_latency_s
from autellix.services.simulator.figures.systems import AUTELLIX, SHAREGPT
from autellix.services.simulator.scenario import Scenario

RATES = (0.8, 1.2, 1.6, 2.4)
"""Programs a second and engine."""
LIMITS_S = (0.03, 0.1, 0.3, 0.5, 1.0)
"""Seconds a token; the last three are the paper's."""
SHORTER = 4
"""So many times less time of arrivals than usual: more engines take more programs."""


def sweeps_of(effort: Effort) -> dict[int, Sweep]:
    """Return the rates for each number of engines; more engines take more programs, so they arrive for less time."""
    return {engines: _sweep(engines, effort.shortened(SHORTER)) for engines in effort.engines}


def _sweep(engines: int, effort: Effort) -> Sweep:
    rates = [rate * engines for rate in RATES]
    return at_rates(SHAREGPT, AUTELLIX, rates, effort, engines=engines)._replace(label=f"{engines} engines")


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return scenarios_of(sweeps_of(effort).values())


def content(effort: Effort, runs: Runs) -> Content:
    """Return the rates borne, and the latencies that they come from."""
    sweeps = sweeps_of(effort)
    borne = {
        limit: {engines: each.crossings(runs, token_latency_s, limit) for engines, each in sweeps.items()}
        for limit in LIMITS_S
    }
    rows = [[f"{limit:g}", *map(bounds_text, by_engines.values())] for limit, by_engines in borne.items()]
    columns = ["limit, s/token", *(each.label for each in sweeps.values())]
    lines = [
        line(
            f"{limit:g} s/token",
            [*by_engines],
            [Seeds(tuple(b.value for b in bounds)) for bounds in by_engines.values()],
        )
        for limit, by_engines in borne.items()
    ]
    tables = [
        Table(title="sharegpt: programs/s within the limit", columns=columns, rows=rows),
        *(rate_table(f"{each.label}: mean s/token", [each], runs, token_latency_s) for each in sweeps.values()),
    ]
    panel = Panel(title="sharegpt", x_label="engines", y_label="programs/s within the limit", lines=lines)
    return Content(tables, [panel])


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    length = effort.shortened(SHORTER).length
    return (
        f"Autellix's scheduler and load balancer, {length}. "
        "Between two simulated rates the logarithm of the latency is taken to be linear."
    )


FIGURE = Figure("fig15", "arrival rate within a latency, by the number of engines", setting, scenarios, content)
