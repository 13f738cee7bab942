"""A comparison for people and for other programs: tables, and JSON with every number."""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from autellix.client.bench.comparison import Outcome, ratios
from autellix.client.bench.measures import Summary
from autellix.client.bench.ratios import mean_and_spread, spread_text
from autellix.client.bench.suite import Suite
from autellix.schemas.spread import Spread

COLUMNS: Mapping[str, Callable[[Summary], float | None]] = {
    "ms/token": lambda summary: _of(summary.token_latency_ms, "mean"),
    "P95": lambda summary: _of(summary.token_latency_ms, "p95"),
    "P99": lambda summary: _of(summary.token_latency_ms, "p99"),
    "completion": lambda summary: _of(summary.completion_s, "mean"),
    "waiting": lambda summary: _of(summary.waiting_share, "mean"),
    "tokens/s": lambda summary: summary.output_tokens_per_s,
    "makespan": lambda summary: summary.took_s,
    "hits": lambda summary: summary.hit_rate,
    "errors": lambda summary: float(summary.errors),
    "pace": lambda summary: summary.pace_ms,
}
"""What is shown of each system and load."""

LEGEND = (
    "Latency, ms/token with its P95 and P99, is the program-level token latency: response time without interrupts "
    "over output tokens. Completion is that of a program, makespan that of all, in seconds; pace is what a fixed "
    "piece of work cost the client's processor, ms: where it differs, so did the machine, and a ratio of paces far "
    "from 1 says that the others mislead. Ratios are means over seeds of runs of the same programs; ± is half the "
    "distance of the least and the greatest. Rates are compared where both systems have the latency that is so many "
    "times the reference's at its lightest load; > and < mark bounds: that latency is beyond the measured range."
)


def loads_table(found: Outcome, suite: Suite) -> Table:
    """Return a row for each load and system."""
    workload = found.workload
    capacity = f"; capacity {found.capacity_per_s:.3g} programs/s" if found.capacity_per_s else ""
    loads = "" if workload.shares else f"; loads are {workload.unit}"
    shown = _table(f"{workload.name}: KV cache of {workload.shape.kv_tokens:,} tokens{capacity}{loads}")
    shown.add_column("load", justify="right")
    shown.add_column("system")
    for title in COLUMNS:
        shown.add_column(title, justify="right")
    for level, system in product(found.levels, suite.systems):
        summaries = found.of(level, system).values()
        if summaries:
            shown.add_row(level, system, *(_cell(map(value, summaries)) for value in COLUMNS.values()))
    return shown


def ratios_table(found: Outcome, suite: Suite) -> Table:
    """Return a row for each ratio over the reference, and a column for each other system."""
    others = [system for system in suite.systems if system != suite.reference]
    shown = _table(f"{found.workload.name}: ratios over {suite.reference}")
    shown.add_column("ratio")
    for system in others:
        shown.add_column(system, justify="right")
    columns = [ratios(found, suite, system, suite.reference) for system in others]
    for name in columns[0] if columns else ():
        shown.add_row(name, *("-" if column[name] is None else str(column[name]) for column in columns))
    return shown


def write_json(found: Mapping[str, Outcome], suite: Suite, machines: Collection[str], file: Path) -> None:
    """Write the suite, where it was run, and of each workload its capacity, every summary and all ratios."""
    numbers = {
        "suite": suite,
        "machines": sorted(machines),
        "workloads": {name: _numbers(outcome, suite) for name, outcome in found.items()},
    }
    file.write_bytes(msgspec.json.format(msgspec.json.encode(numbers), indent=1) + b"\n")


def _numbers(found: Outcome, suite: Suite) -> dict[str, object]:
    runs = [
        {"load": level, "system": system, "seed": seed, "summary": summary}
        for (level, system), of_seeds in found.summaries.items()
        for seed, summary in of_seeds.items()
    ]
    others = [system for system in suite.systems if system != suite.reference]
    over = {system: ratios(found, suite, system, suite.reference) for system in others}
    return {"capacity_per_s": found.capacity_per_s, "runs": runs, "ratios": over}


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))


def _cell(values: Iterable[float | None]) -> str:
    """Return the mean over the seeds that tell."""
    told = [value for value in values if value is not None]
    return spread_text(*mean_and_spread(told)) if told else "-"


def _of(spread: Spread | None, name: str) -> float | None:
    return None if spread is None else float(getattr(spread, name))
