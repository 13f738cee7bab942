"""A run as a table, as JSON and as a picture."""

from pathlib import Path

import pytest
from rich.console import Console

from autellix.client.bench import curves, report
from autellix.client.bench.idle import Idle
from autellix.client.bench.measures import Run, summarize
from tests.client.bench.test_measures import row, run_of

IDLE = Idle(first_token_s=0.0125, computed_token_s=0.0005, output_token_s=0.003)


def shown(run: Run) -> str:
    """Return the table of a run as text, without runs of spaces."""
    console = Console(width=120)
    with console.capture() as capture:
        console.print(report.table(run, summarize(run)))
    return " ".join(capture.get().split())


def test_table_has_every_number() -> None:
    """What the summary has is in the table."""
    text = shown(run_of(*(row(number) for number in range(10))))

    assert "1 programs of bfcl, 1/s, seed 1, on s" in text
    assert "token latency, ms 100 100 100 100" in text
    assert "completion, s 4 4 4 4" in text
    assert "slowdown 2 2 2 2" in text
    assert "waited, % 25 25 25 25" in text
    assert "8 of 8 measured programs finished; the run took 9.0 s." in text
    assert "30 output tokens/s, 1 programs/s, prefix hit rate 40.0%." in text


def test_table_says_what_went_wrong_or_is_not_known() -> None:
    """Errors, short answers and what the server does not tell are said."""
    text = shown(run_of(row(0, error="refused", cached_tokens=None, short_answers=2)))

    assert "1 of 1 programs failed, the first with: refused" in text
    assert "2 answers were shorter than recorded" in text
    assert "unknown output tokens/s, unknown programs/s, prefix hit rate not told." in text
    assert "completion, s - - - -" in text


def test_table_says_how_fast_the_idle_system_is() -> None:
    """What slowdowns are measured against is shown."""
    run = run_of(row(0))
    idle = Run(load=run.load, system="s", started_at="", took_s=1.0, idle=IDLE, rows=run.rows)

    assert "12.5 ms to the first token and 0.500 ms a computed prompt token, 3.00 ms an output token" in shown(idle)


def test_file_holds_the_run(tmp_path: Path) -> None:
    """A run that is written is read again as it was, and its numbers are beside it."""
    run = run_of(row(0), row(1, error="refused"))
    report.write_json(run, summarize(run), tmp_path / "run.json")

    assert run == report.read_json(tmp_path / "run.json")
    assert '"token_latency_ms": {' in (tmp_path / "run.json").read_text()


def test_file_without_a_run_is_named(tmp_path: Path) -> None:
    """A file that holds something else is an error that names it."""
    file = tmp_path / "run.json"
    file.write_text("{}")

    with pytest.raises(report.ReportError, match=r"run\.json: Object missing required field"):
        report.read_json(file)


def test_picture_is_drawn(tmp_path: Path) -> None:
    """Runs are drawn as a PNG file, one in which nothing finished, too."""
    file = tmp_path / "run.png"
    curves.draw([run_of(row(0), row(1, makespan_s=9.0)), run_of(row(0, error="refused"))], file)

    assert b"\x89PNG" == file.read_bytes()[:4]
