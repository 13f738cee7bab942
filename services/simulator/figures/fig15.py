"""Figure 15: the arrival rate that engines bear within a latency, by their number."""

from dataclasses import replace

from autellix.services.simulator.figures.curves import Bound, Seeds, bounds_text, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import Sweep, at_rates, rate_table, scenarios_of, token_latency_s
from autellix.services.simulator.figures.systems import AUTELLIX, SHAREGPT
from autellix.services.simulator.scenario import Scenario

RATES = (1.2, 1.8, 2.4, 3.0)
"""Programs a second and engine."""
LIMITS_S = (0.018, 0.021, 0.025)
"""Seconds a token."""
SHORTER = 4
"""So many times less time of arrivals than usual: more engines take more programs."""


def sweeps_of(effort: Effort) -> dict[int, Sweep]:
    """Return the rates for each number of engines; fewer engines get more seeds, so that all see as many programs."""
    most, shorter = max(effort.engines), effort.shortened(SHORTER)
    efforts = {engines: replace(shorter, seeds=_seeds(effort, most // engines)) for engines in effort.engines}
    return {engines: _sweep(engines, each) for engines, each in efforts.items()}


def _seeds(effort: Effort, times: int) -> tuple[int, ...]:
    """Return so many times as many seeds: the given ones, and the next after each."""
    count = len(effort.seeds)
    return tuple(seed + count * number for number in range(times) for seed in effort.seeds)


def _sweep(engines: int, effort: Effort) -> Sweep:
    rates = [round(rate * engines, 2) for rate in RATES]
    found = at_rates(SHAREGPT, AUTELLIX, rates, effort, engines=engines, policy="auto")
    return found._replace(label=f"{engines} engines" if engines > 1 else "1 engine")


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return scenarios_of(sweeps_of(effort).values())


def content(effort: Effort, runs: Runs) -> Content:
    """Return the rates borne, what that is of a proportional rate, and the latencies that both come from."""
    sweeps = sweeps_of(effort)
    borne = {
        limit: {engines: each.crossings(runs, token_latency_s, limit) for engines, each in sweeps.items()}
        for limit in LIMITS_S
    }
    columns = ["limit, s/token", *(each.label for each in sweeps.values())]
    shares = [[f"{limit:g}", *(_efficiency(engines, of) for engines in sweeps)] for limit, of in borne.items()]
    rates = [[f"{limit:g}", *map(bounds_text, of.values())] for limit, of in borne.items()]
    tables = [
        Table(title="sharegpt: the rate that an engine bears, over that of one alone", columns=columns, rows=shares),
        Table(title="sharegpt: programs/s within the limit", columns=columns, rows=rates),
        *(rate_table(f"{each.label}: mean s/token", [each], runs, token_latency_s) for each in sweeps.values()),
    ]
    lines = [line(f"{limit:g} s/token", [*of], [*map(_values, of.values())]) for limit, of in borne.items()]
    panel = Panel(title="sharegpt", x_label="engines", y_label="programs/s within the limit", lines=lines)
    return Content(tables, [panel])


def _values(bounds: list[Bound]) -> Seeds:
    return Seeds(tuple(bound.value for bound in bounds))


def _efficiency(engines: int, borne: dict[int, list[Bound]]) -> str:
    """Return the rate of each of so many engines over that of one alone; a dash where a rate is only a bound."""
    alone = min(borne)
    if any(bound.sign for bound in (*borne[alone], *borne[engines])):
        return "-"
    return f"{_values(borne[engines]).mean / engines / (_values(borne[alone]).mean / alone):.3f}"


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    length = effort.shortened(SHORTER).length
    most = max(effort.engines)
    return (
        f"Engines with the policy auto, the balancer's rule `home`, {length}. "
        "Between two simulated rates the logarithm of the latency is taken to be linear. "
        f"Fewer engines get more seeds, one engine {most} times as many as {most}, so that all see as many programs."
    )


FIGURE = Figure("fig15", "arrival rate within a latency, by the number of engines", setting, scenarios, content)
