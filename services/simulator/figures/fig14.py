"""Figure 14: load balancers in front of four and of eight engines."""

import msgspec

from autellix.services.config import LoadBalancerSettings
from autellix.services.load_balancer.choices import RULES
from autellix.services.simulator.figures.curves import bounds_text
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure, compared
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import (
    Sweep,
    Value,
    at_rates,
    hit_rate,
    rate_panel,
    rate_table,
    scenarios_of,
    throughput_ratio,
    token_latency_p95_s,
    token_latency_p99_s,
    token_latency_s,
)
from autellix.services.simulator.figures.systems import AUTELLIX, LATS, SHAREGPT, Workload
from autellix.services.simulator.scenario import Scenario

ENGINES = (4, 8)
WORKLOADS = (SHAREGPT, LATS)
RATES = {SHAREGPT: (0.6, 0.85, 1.2, 1.6), LATS: (0.06, 0.08, 0.105, 0.14)}
"""Programs a second and engine: so that every balancer reaches the latency at which they are compared."""
OURS = "home"
OTHERS = [rule for rule in RULES if rule != OURS]
PAPER = {"autellix": "", "prefix_tree": "about 1", "least_used": "up to 1.4 or 1.5", "round_robin": "up to 1.4 or 1.5"}
"""What the paper says of its own rule, which is `autellix` here."""
VALUES: dict[str, Value] = {"mean": token_latency_s, "P95": token_latency_p95_s, "P99": token_latency_p99_s}
SHORTER = 5
"""So many times less time of arrivals than usual: more engines take more programs."""
LEVEL = 1.5
"""Balancers are compared where the latency is so many times that of ours at the lightest load."""


def sweeps_of(workload: Workload, engines: int, effort: Effort) -> dict[str, Sweep]:
    """Return each balancer at the rates of a workload."""
    effort = effort.shortened(SHORTER)
    return {rule: _sweep(workload, engines, rule, effort) for rule in RULES}


def _sweep(workload: Workload, engines: int, rule: str, effort: Effort) -> Sweep:
    rates = [round(rate * engines, 2) for rate in RATES[workload]]
    balancer = msgspec.convert({"policy": rule}, LoadBalancerSettings)
    found = at_rates(workload, AUTELLIX, rates, effort, engines=engines, balancer=balancer, policy="auto")
    return found._replace(label=rule)


def all_sweeps(effort: Effort) -> dict[str, dict[str, Sweep]]:
    """Return the sweeps of each workload and number of engines, by what to call them."""
    return {
        f"{workload.name}, {engines} engines": sweeps_of(workload, engines, effort)
        for workload in WORKLOADS
        for engines in ENGINES
    }


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [each for sweeps in all_sweeps(effort).values() for each in scenarios_of(sweeps.values())]


def content(effort: Effort, runs: Runs) -> Content:
    """Return latencies and hit rates of each balancer, and the throughput at equal latency."""
    tables, panels, claims = [], [], []
    for name, sweeps in all_sweeps(effort).items():
        for kind, value in VALUES.items():
            tables.append(rate_table(f"{name}: {kind}, s/token", [*sweeps.values()], runs, value))
        panels.append(rate_panel(f"{name}: mean, s/token", [*sweeps.values()], runs, token_latency_s))
        tables.append(rate_table(f"{name}: prefix hit rate", [*sweeps.values()], runs, hit_rate))
        claims += [[f"{name}, over {other}", PAPER[other], "", _ratio(sweeps, other, runs)] for other in OTHERS]
    return Content([compared([f"throughput of {OURS}"], claims), *tables], panels)


def _ratio(sweeps: dict[str, Sweep], other: str, runs: Runs) -> str:
    level = sweeps[OURS].numbers(runs, token_latency_s)[0].mean * LEVEL
    return bounds_text(throughput_ratio(sweeps[OURS], sweeps[other], runs, token_latency_s, level))


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        f"Engines with the policy auto, {effort.shortened(SHORTER).length}. "
        "The balancer's rule `home` is ours, `autellix` the paper's. Throughput is compared where the mean latency is "
        f"{LEVEL:g} times that of `home` at the lightest load."
    )


FIGURE = Figure("fig14", "load balancers in front of four and of eight engines", setting, scenarios, content)
