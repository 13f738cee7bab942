"""The gate in front of an engine with a tier of KV in CPU memory, from none to four times the engine's own."""

from typing import Any, NamedTuple

from autellix.services.simulator.figures.curves import Seeds, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import FULL, Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.gate import CODE, GIVE_UP_S, JUDGED_ON, VALUES
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.scenario import Scenario

SYSTEMS = ("fcfs", "auto")
"""Without a gate, and with it."""
TIERS = (0, 1, 2, 4)
"""Over the engine's own KV cache."""
PROGRAMS_EACH = 3
COLUMNS = ("working set / KV", "hit rate", "tokens/s", "wait, s", "P99 wait, s")


class Load(NamedTuple):
    """A workload, and how many programs are there at a time."""

    workload: str
    kv_tokens: int
    live: tuple[int, ...]
    """By which the working set is 1.2 and 1.8 of the KV cache with `fcfs` and no tier."""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def run_of(self, system: str, live: int, tier: int, seed: int, effort: Effort) -> Scenario:
        """Return one run."""
        share = effort.arrivals_s / FULL.arrivals_s
        return Scenario(
            workload=self.workload,
            programs=max(round(PROGRAMS_EACH * share * live), 2 * live),
            live_programs=live,
            seed=seed,
            policy=system,  # type: ignore[arg-type]
            overrides={"engine": {"slots": 64, "kv_tokens": self.kv_tokens}},
            kv_tier_tokens=tier * self.kv_tokens,
            limit_s=GIVE_UP_S,
            **JUDGED_ON,
            **self.more,
        )


LOADS = (Load("bfcl", 200_000, (50, 80)), Load("claude_code", 400_000, (7, 11), CODE))


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [
        load.run_of(system, live, tier, seed, effort)
        for load in LOADS
        for live in load.live[:: effort.every]
        for tier in TIERS
        for system in SYSTEMS
        for seed in effort.seeds
    ]


def content(effort: Effort, runs: Runs) -> Content:
    """Return a table for each workload and a panel for each load."""
    tables = [_table(load, effort, runs) for load in LOADS]
    panels = [_panel(load, live, effort, runs) for load in LOADS for live in load.live[:: effort.every]]
    return Content(tables, panels)


def _numbers(load: Load, live: int, tier: int, system: str, effort: Effort, runs: Runs) -> dict[str, Seeds]:
    results = [runs.result(load.run_of(system, live, tier, seed, effort)) for seed in effort.seeds]
    return {name: Seeds(tuple(map(VALUES[name], results))) for name in COLUMNS}


def _table(load: Load, effort: Effort, runs: Runs) -> Table:
    rows = [
        [
            str(live),
            str(tier),
            system,
            *(each.text() for each in _numbers(load, live, tier, system, effort, runs).values()),
        ]
        for live in load.live[:: effort.every]
        for tier in TIERS
        for system in SYSTEMS
    ]
    title = f"{load.workload}, KV cache of {load.kv_tokens:,} tokens"
    return Table(title=title, columns=["live programs", "tier / KV", "system", *COLUMNS], rows=rows)


def _panel(load: Load, live: int, effort: Effort, runs: Runs) -> Panel:
    lines = [
        line(system, TIERS, [_numbers(load, live, tier, system, effort, runs)["tokens/s"] for tier in TIERS])
        for system in SYSTEMS
    ]
    return Panel(title=f"{load.workload}, {live} at a time", x_label="tier / KV", y_label="tokens/s", lines=lines)


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    return (
        "One engine with 64 slots and a tier of KV in CPU memory, over the engine's own KV cache; so many programs are "
        "there at any time, from the second halves of the traces (of Claude Code those that grow to 120,000 tokens at "
        f"most); runs of {effort.arrivals_s / FULL.arrivals_s:.0%} of the full length."
    )


FIGURE = Figure("tier", "a CPU tier of KV, and the gate", setting, scenarios, content)
