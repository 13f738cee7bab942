"""A run for people and for other programs: a table, a progress bar, and JSON with every row."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from autellix.client.bench.measures import Run, Summary
from autellix.client.errors import AutellixError
from autellix.schemas.spread import Spread


class ReportError(AutellixError):
    """A file that holds no run; the text names it."""


class _Report(Run, frozen=True, kw_only=True):
    """A run and its numbers, as the file has them."""

    summary: Summary


def write_json(run: Run, summary: Summary, file: Path) -> None:
    """Write a run with all its rows, and its numbers."""
    report = _Report(**msgspec.structs.asdict(run), summary=summary)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def read_json(file: Path) -> Run:
    """Return the run in a file; its numbers are to be computed anew.

    Raises:
        ReportError: when the file holds none.
        OSError: when it cannot be read.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=Run)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReportError(f"{file}: {error}") from error


@contextmanager
def progress(programs: int, console: Console) -> Iterator[Callable[[], None]]:
    """Show how many programs are over, on a terminal; yield what to call for each."""
    columns = (TextColumn("programs over"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=programs)
        yield lambda: bar.advance(task)


def table(run: Run, summary: Summary) -> RenderableType:
    """Return what there is to see of a run."""
    shown = Table(title=f"{run.load.title}, on {run.system}", box=SIMPLE_HEAD, title_justify="left")
    shown.add_column("of each measured program")
    for name in ("mean", "P50", "P95", "P99"):
        shown.add_column(name, justify="right")
    shown.add_row("token latency, ms", *_cells(summary.token_latency_ms))
    shown.add_row("completion, s", *_cells(summary.completion_s))
    shown.add_row("slowdown", *_cells(summary.slowdown))
    shown.add_row("share of the response it waited, %", *_cells(summary.waiting_share, 100))
    return Group(shown, *_sentences(run, summary))


def _cells(spread: Spread | None, unit: float = 1.0) -> list[str]:
    if spread is None:
        return ["-"] * 4
    return [f"{value * unit:,.4g}" for value in (spread.mean, spread.p50, spread.p95, spread.p99)]


def _sentences(run: Run, summary: Summary) -> list[str]:
    hits = "not told" if summary.hit_rate is None else f"{summary.hit_rate:.1%}"
    tokens_per_s = _rate(summary.output_tokens_per_s)
    said = [
        f"{summary.finished} of {summary.measured} measured programs finished; the run took {run.took_s:.1f} s.",
        f"{tokens_per_s} output tokens/s, {_rate(summary.programs_per_s)} programs/s, prefix hit rate {hits}.",
    ]
    if run.idle:
        idle = run.idle
        said.append(
            f"The idle system: {idle.first_token_s * 1000:.1f} ms to the first token and "
            f"{idle.computed_token_s * 1000:.3f} ms a computed prompt token, {idle.output_token_s * 1000:.2f} ms an "
            "output token."
        )
    if summary.short_answers:
        said.append(f"{summary.short_answers} answers were shorter than recorded: this is a lighter load than asked.")
    if summary.errors:
        first = next(row.error for row in run.rows if row.error)
        said.append(f"{summary.errors} of {len(run.rows)} programs failed, the first with: {first}")
    return said


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.3g}"
