"""A run as tables for people."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from autellix.schemas.spread import Spread
from autellix.services.simulator.results import EngineRow, Result, Summary


def run_table(result: Result) -> RenderableType:
    """Return what there is to see of a run."""
    spreads = _spreads(result.summary, f"{result.title}: each measured program")
    loaded = sum(each.counters.loaded_tokens for each in result.engines)
    copies = [f"{loaded:,} tokens were copied back from CPU memory."] if result.scenario.kv_tier_tokens else []
    return Group(spreads, *_sentences(result.summary), *copies, _engines(result.engines))


def _spreads(summary: Summary, title: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for name in ("mean", "P50", "P95", "P99"):
        table.add_column(name, justify="right")
    table.add_row("token latency, ms", *_cells(summary.ms_per_token))
    table.add_row("response without interrupts, s", *_cells(summary.response_ms, 1000))
    table.add_row("with interrupts, s", *_cells(summary.jct_ms, 1000))
    table.add_row("waiting, sum of its calls, s", *_cells(summary.wait_ms, 1000))
    table.add_row("service, sum of its calls, s", *_cells(summary.service_ms, 1000))
    table.add_row("share of the response it waited, %", *_cells(summary.wait_share, 0.01))
    return table


def _cells(spread: Spread | None, unit: float = 1.0) -> list[str]:
    if spread is None:
        return ["-"] * 4
    return [f"{value / unit:,.4g}" for value in (spread.mean, spread.p50, spread.p95, spread.p99)]


def _sentences(summary: Summary) -> list[str]:
    fates = (
        f"Measured are the {summary.measured} programs that arrived in the middle: {summary.finished} finished, "
        f"{summary.failed} failed, {summary.unfinished} were left over."
    )
    rates = (
        f"Over all {summary.virtual_ms / 1000:,.0f} s of virtual time, until the last of them had ended: "
        f"{summary.programs_per_s:.3g} programs/s, {summary.output_tokens_per_s:,.0f} output tokens/s, "
        f"prefix hit rate {summary.prefix_hit_rate:.1%}, {summary.preemptions:,} preemptions. "
        f"The working set was {summary.working_set:.2f} of the KV cache."
    )
    limit = "The limit of virtual time ended the run: the programs left over are missing from the table."
    return [fates, rates, limit] if summary.limit_hit else [fates, rates]


def _engines(engines: list[EngineRow]) -> Table:
    table = Table(title="Engines", box=SIMPLE_HEAD, title_justify="left")
    table.add_column("engine")
    for name in ("calls", "steps", "busy, s", "prefilled", "preemptions", "swaps", "swapping, s", "scheduling, s"):
        table.add_column(name, justify="right")
    for row in engines:
        seen = row.counters
        counts = (row.calls, seen.steps, seen.busy_ms / 1000, seen.prefill_tokens, seen.preemptions, seen.swaps)
        cells = (*counts, seen.swap_ms / 1000, seen.scheduler_ms / 1000)
        table.add_row(row.engine, *(f"{value:,.0f}" for value in cells))
    return table
