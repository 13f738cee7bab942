"""The process table as people see it."""

from rich.console import Console

from autellix.client.tables import interrupted_ms, life_ms, programs_table
from autellix.schemas.ids import ProgramId
from autellix.schemas.table import ProgramList, ProgramRecord


def record(**fields: float | str) -> ProgramRecord:
    """Return a program that started at 1,000 ms and was busy for 300 ms."""
    facts = {"program_id": ProgramId("0123456789abcdef"), "started_at_ms": 1000.0, "busy_ms": 300.0, **fields}
    return ProgramRecord(**facts)  # type: ignore[arg-type]  # the tests name the fields


def test_interrupted_is_life_without_live_calls() -> None:
    """A program that runs has lived until now, one that ended until its end."""
    runs, ended = record(), record(ended_at_ms=1500.0)

    assert (life_ms(runs, 2000), interrupted_ms(runs, 2000)) == (1000.0, 700.0)
    assert (life_ms(ended, 2000), interrupted_ms(ended, 2000)) == (500.0, 200.0)


def test_interrupted_is_never_negative() -> None:
    """Clocks that differ by a little do not make time negative."""
    assert interrupted_ms(record(ended_at_ms=1299.0), 2000) == 0.0


def test_row_shows_seconds_and_a_name_from_outside() -> None:
    """Times are seconds, ids are short, and a name is never markup."""
    console = Console(width=160, record=True)
    program = record(name="[red]agent[/]", service_ms=1500.0)

    console.print(programs_table(ProgramList(programs=[program], at_ms=2000.0)))

    shown = console.export_text()
    assert "012345 " in shown
    assert "[red]agent[/]" in shown
    assert "1.50" in shown
    assert "0.70" in shown
