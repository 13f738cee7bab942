"""Figure 14: load balancers in front of four engines."""

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

ENGINES = 4
WORKLOADS = (SHAREGPT, LATS)
RATES = {SHAREGPT: (2.4, 3.2, 4.0, 4.8), LATS: (0.24, 0.32, 0.4, 0.48)}
BALANCERS = sorted(RULES)
OTHERS = [rule for rule in BALANCERS if rule != "autellix"]
VALUES: dict[str, Value] = {"mean": token_latency_s, "P95": token_latency_p95_s, "P99": token_latency_p99_s}
SHORTER = 3
"""So many times less time of arrivals than usual: more engines take more programs."""
LEVEL = 1.5
"""Balancers are compared where the latency is so many times that of `autellix` at the lightest load."""


def sweeps_of(workload: Workload, effort: Effort) -> dict[str, Sweep]:
    """Return each balancer at the rates of a workload."""
    effort = effort.shortened(SHORTER)
    return {rule: _sweep(workload, rule, effort) for rule in BALANCERS}


def _sweep(workload: Workload, rule: str, effort: Effort) -> Sweep:
    balancer = msgspec.convert({"policy": rule}, LoadBalancerSettings)
    found = at_rates(workload, AUTELLIX, RATES[workload], effort, engines=ENGINES, balancer=balancer)
    return found._replace(label=rule)


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [each for workload in WORKLOADS for each in scenarios_of(sweeps_of(workload, effort).values())]


def content(effort: Effort, runs: Runs) -> Content:
    """Return latencies and hit rates of each balancer, and the throughput at equal latency."""
    tables, panels, claims = [], [], []
    for workload in WORKLOADS:
        sweeps = sweeps_of(workload, effort)
        for name, value in VALUES.items():
            title = f"{workload.name}: {name}, s/token"
            tables.append(rate_table(title, [*sweeps.values()], runs, value))
            panels.append(rate_panel(title, [*sweeps.values()], runs, value))
        tables.append(rate_table(f"{workload.name}: prefix hit rate", [*sweeps.values()], runs, hit_rate))
        claims += [
            [f"{workload.name}, over {other}", "up to 1.4 or 1.5", "", _ratio(sweeps, other, runs)] for other in OTHERS
        ]
    return Content([compared(["throughput of autellix"], claims), *tables], panels)


def _ratio(sweeps: dict[str, Sweep], other: str, runs: Runs) -> str:
    level = sweeps["autellix"].numbers(runs, token_latency_s)[0].mean * LEVEL
    return bounds_text(throughput_ratio(sweeps["autellix"], sweeps[other], runs, token_latency_s, level))


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        f"{ENGINES} engines under Autellix's scheduler, {effort.shortened(SHORTER).length}. Throughput is compared "
        f"where the mean latency is {LEVEL:g} times that of the balancer autellix at the lightest load."
    )


FIGURE = Figure("fig14", "load balancers in front of four engines", setting, scenarios, content)
