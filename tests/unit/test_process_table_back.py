"""Who comes back: the process table after a restart, and named programs that begin anew."""

from __future__ import annotations

import pytest

from autellix.schemas.messages import Event, ProgramEnded, ProgramStarted
from autellix.services.config import ProcessTableSettings
from autellix.services.process_table.core import SILENT_MAX_MS, ProcessTable
from tests.unit.test_process_table import P, admit, call, finished, record


@pytest.fixture
def table() -> ProcessTable:
    """Return an empty table."""
    return ProcessTable(ProcessTableSettings())


def test_named_program_that_was_there_before(table: ProcessTable) -> None:
    """The second life of a named program is not touched by the events of its first, heard once more after a restart."""
    first: list[Event] = [ProgramStarted(program_id=P, name="p", at_ms=1.0), ProgramEnded(program_id=P, at_ms=5.0)]
    second = ProgramStarted(program_id=P, name="p", at_ms=6.0)
    for event in (*first, second):
        table.recover(event, 7.0)
    again = ProcessTable(ProcessTableSettings())
    again.restore(table.snapshot(), 8.0)
    for event in (*first, second):
        again.recover(event, 8.0)
    again.recovered(8.0)

    assert (record(again).state, record(again).started_at_ms) == ("running", 6.0)


def test_program_that_nobody_heard_the_end_of(table: ProcessTable) -> None:
    """After a restart, who was silent for days is over; who was not goes on."""
    table.recover(ProgramStarted(program_id=P, at_ms=1000.0), 0.0)
    table.recovered(1000.0 + SILENT_MAX_MS)
    before = record(table).state
    table.recovered(1001.0 + SILENT_MAX_MS)

    assert (before, record(table).state) == ("running", "expired")


@pytest.mark.parametrize(("source", "state"), [("started", "ended"), ("none", "ended"), ("codex", "running")])
def test_end_before_its_start(table: ProcessTable, source: str, state: str) -> None:
    """When the clock was set back an end is before its start; only a named program may have had a life before."""
    table.handle(ProgramStarted(program_id=P, source=source, at_ms=1000.0), 1000.0)
    table.handle(ProgramEnded(program_id=P, at_ms=400.0), 400.0)

    assert record(table).state == state


def test_a_start_heard_again_after_an_end_that_is_stamped_earlier(table: ProcessTable) -> None:
    """The clock was set back in between; taken in once more, in their order, the two leave one program as it was."""
    events: list[Event] = [
        ProgramStarted(program_id=P, source="started", at_ms=1000.0),
        ProgramEnded(program_id=P, at_ms=400.0),
    ]
    admit(table, call(1))
    for event in (*events, finished(call(1), at_ms=1500.0, service_ms=7.0), *events):
        table.recover(event, 2000.0)

    assert ("ended", 7.0, 1) == (record(table).state, record(table).service_ms, record(table).calls)


def test_late_end_of_a_life_before(table: ProcessTable) -> None:
    """A call of a named session that ends when that has begun anew is not charged to its new life."""
    old, new = call(1), call(100)
    table.handle(ProgramStarted(program_id=P, name="s", source="session", at_ms=0.0), 0.0)
    admit(table, old)
    table.handle(ProgramEnded(program_id=P, at_ms=30.0), 30.0)
    table.handle(ProgramStarted(program_id=P, name="s", source="session", at_ms=new.arrival_at_ms), 100.0)
    admit(table, new)
    table.handle(finished(old, 120.0, service_ms=15.0), 120.0)
    table.handle(finished(new, 130.0, service_ms=2.0), 130.0)

    assert (record(table).service_ms, record(table).calls, record(table).live_calls) == (2.0, 1, 0)


def test_call_before_the_start_of_its_only_life(table: ProcessTable) -> None:
    """When the clock was set back, and the call never came here, it is charged all the same."""
    table.handle(ProgramStarted(program_id=P, name="s", source="session", at_ms=5000.0), 5000.0)
    table.handle(finished(call(1), 120.0, service_ms=15.0), 120.0)

    assert (record(table).service_ms, record(table).calls) == (15.0, 1)


def test_call_of_a_new_life_before_its_start(table: ProcessTable) -> None:
    """A call of a named session that is over is the first of a new life, whose start is heard a moment later."""
    old, new = call(1), call(100)
    table.handle(ProgramStarted(program_id=P, name="s", source="session", at_ms=0.0), 0.0)
    admit(table, old)
    table.handle(finished(old, 20.0, service_ms=15.0), 20.0)
    table.handle(ProgramEnded(program_id=P, at_ms=30.0), 30.0)
    facts = admit(table, new)
    table.handle(ProgramStarted(program_id=P, name="s", source="session", at_ms=new.arrival_at_ms), 101.0)

    assert (facts.service_ms, facts.critical_path_ms) == (0.0, 0.0)
    assert (record(table).state, record(table).live_calls, record(table).calls) == ("running", 1, 0)
