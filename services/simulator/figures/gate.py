"""The gate under memory pressure: programs that do not fit together, and programs that come faster than they go."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from autellix.services.simulator.figures.curves import Seeds, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import FULL, Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.systems import PROGRAMS_MIN
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario

SYSTEMS: dict[str, dict[str, Any]] = {
    "stock": {"policy": "fcfs"},
    "atlas": {"policy": "atlas"},
    "plain gate": {"policy": "fcfs", "gate": "plain"},
    "auto": {"policy": "auto"},
    "gate + srpt": {"policy": "srpt", "gate": "fair"},
}
"""The last one knows the future."""
JUDGED_ON: dict[str, Any] = {"half": "second"}
"""The gate's constants were chosen on the first halves of the traces."""
GIVE_UP_S = 300_000.0


class Pressure(NamedTuple):
    """A workload, the room for it, and how many programs are there at a time, or come a second."""

    workload: str
    kv_tokens: int
    steps: tuple[float, ...]
    """From little pressure to much."""
    programs: float
    """Of a full run: for each that is there at a time, or of all where they come at a rate."""
    at_rates: bool = False
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def run_of(self, system: str, step: float, seed: int, effort: Effort) -> Scenario:
        """Return one run."""
        share = effort.arrivals_s / FULL.arrivals_s
        live = None if self.at_rates else round(step)
        return Scenario(
            workload=self.workload,
            programs=max(round(self.programs * share * (live or 1)), 2 * (live or PROGRAMS_MIN)),
            live_programs=live,
            rate_per_s=step if self.at_rates else 1.0,
            seed=seed,
            overrides={"engine": {"slots": 64, "kv_tokens": self.kv_tokens}},
            limit_s=GIVE_UP_S,
            **SYSTEMS[system],
            **JUDGED_ON,
            **self.more,
        )

    @property
    def unit(self) -> str:
        """Return what the steps count."""
        return "programs/s" if self.at_rates else "live programs"


CODE: dict[str, Any] = {"max_context_tokens": 120_000}
PRESSURES = (
    Pressure("sharegpt", 150_000, (40, 150), 3),
    Pressure("bfcl", 400_000, (40, 100, 160), 3),
    Pressure("lats", 60_000, (20,), 3),
    Pressure("mixed", 150_000, (40,), 3),
    Pressure("claude_code", 400_000, (3, 10), 3, more=CODE),
    Pressure("sharegpt", 400_000, (1.0, 2.2), 400, at_rates=True),
    Pressure("bfcl", 400_000, (0.9, 1.4), 350, at_rates=True),
    Pressure("mixed", 400_000, (0.22, 0.45), 120, at_rates=True),
    Pressure("mixed", 150_000, (0.22, 0.5, 0.9), 150, at_rates=True),
)
"""Of the rates the first is one at which every system keeps up, the others are past what the stock engine can do."""
VALUES: dict[str, Callable[[Result], float]] = {
    "working set / KV": lambda result: result.summary.working_set,
    "hit rate": lambda result: result.summary.prefix_hit_rate,
    "tokens/s": lambda result: result.summary.output_tokens_per_s,
    "wait, s": lambda result: result.summary.wait_ms.mean / 1000 if result.summary.wait_ms else inf,
    "P99 wait, s": lambda result: result.summary.wait_ms.p99 / 1000 if result.summary.wait_ms else inf,
    "latency, ms/token": lambda result: result.summary.ms_per_token.mean if result.summary.ms_per_token else inf,
    "P99 latency": lambda result: result.summary.ms_per_token.p99 if result.summary.ms_per_token else inf,
    "response, s": lambda result: result.summary.response_ms.mean / 1000 if result.summary.response_ms else inf,
}


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [
        pressure.run_of(system, step, seed, effort)
        for pressure in PRESSURES
        for step in pressure.steps[:: effort.every]
        for system in SYSTEMS
        for seed in effort.seeds
    ]


def content(effort: Effort, runs: Runs) -> Content:
    """Return a table and two panels for each workload."""
    tables = [_table(pressure, effort, runs) for pressure in PRESSURES]
    panels = [
        _panel(pressure, effort, runs, name)
        for pressure in PRESSURES
        if not pressure.at_rates
        for name in ("latency, ms/token", "tokens/s")
    ]
    return Content(tables, panels)


def _numbers(pressure: Pressure, system: str, step: float, effort: Effort, runs: Runs) -> dict[str, Seeds]:
    results = [runs.result(pressure.run_of(system, step, seed, effort)) for seed in effort.seeds]
    return {name: Seeds(tuple(map(value, results))) for name, value in VALUES.items()}


def _table(pressure: Pressure, effort: Effort, runs: Runs) -> Table:
    rows = [
        [f"{step:g}", system, *(seeds.text() for seeds in _numbers(pressure, system, step, effort, runs).values())]
        for step in pressure.steps[:: effort.every]
        for system in SYSTEMS
    ]
    title = f"{pressure.workload}, KV cache of {pressure.kv_tokens:,} tokens"
    return Table(title=title, columns=[pressure.unit, "system", *VALUES], rows=rows)


def _panel(pressure: Pressure, effort: Effort, runs: Runs, name: str) -> Panel:
    steps: Sequence[float] = pressure.steps[:: effort.every]
    lines = [
        line(system, steps, [_numbers(pressure, system, step, effort, runs)[name] for step in steps])
        for system in SYSTEMS
    ]
    y_log = name.startswith("latency")
    return Panel(title=pressure.workload, x_label=pressure.unit, y_label=name, lines=lines, y_log=y_log)


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        "One engine with 64 slots; so many programs are there at any time, or come a second, from the second halves of "
        "the traces (of Claude Code those that grow to 120,000 tokens at most); runs of "
        f"{effort.arrivals_s / FULL.arrivals_s:.0%} of the full length."
    )


FIGURE = Figure("gate", "programs that do not fit together", setting, scenarios, content)
