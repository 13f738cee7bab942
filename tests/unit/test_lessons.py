"""How the process table learns from whole programs, and tells every engine."""

from collections.abc import Iterable

import pytest

from autellix.engine.policy.learning import FIT_EVERY, KNOWN_MIN
from autellix.schemas import subjects
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import (
    AdmittedCall,
    Call,
    CallFinished,
    Priorities,
    ProgramEnded,
    ProgramExpired,
    SubmittedCall,
)
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Out
from autellix.services.process_table.core import ProcessTable
from autellix.services.process_table.lessons import RETELL_MS

P = ProgramId("p")


def call(program_id: ProgramId = P, number: int = 0) -> Call:
    """Return a call of a program."""
    return Call(
        call_id=CallId(f"{program_id}-{number}"),
        program_id=program_id,
        thread_id=ThreadId("main"),
        api="/v1/chat/completions",
        model="m",
        body=b"{}",
        stream=False,
        reply_to="_INBOX.1",
        arrival_at_ms=0.0,
    )


def finished(ended: Call, service_ms: float) -> CallFinished:
    """Return the end of a call."""
    return CallFinished(
        call_id=ended.call_id,
        program_id=ended.program_id,
        thread_id=ended.thread_id,
        at_ms=1.0,
        arrival_at_ms=0.0,
        service_ms=service_ms,
    )


def run(table: ProcessTable, program_id: str, *services_ms: float, kind: str = "") -> None:
    """Let a program make calls of these services, one after the other, and end."""
    for number, service_ms in enumerate(services_ms):
        made = call(ProgramId(program_id), number)
        table.handle(SubmittedCall(call=made, kind=kind), 0.0)
        table.handle(finished(made, service_ms), 1.0)
    table.handle(ProgramEnded(program_id=ProgramId(program_id), at_ms=2.0), 2.0)


def samples(table: ProcessTable) -> dict[str, list[float]]:
    """Return the services that the table remembers, by kind."""
    return {kind: sample.services_ms for kind, sample in table._lessons.learnt.kinds.items()}


def told(outs: Iterable[Out]) -> list[Priorities]:
    """Return what engines are told."""
    found = [out.message for out in outs if out.subject == subjects.PRIORITIES]
    return [message for message in found if isinstance(message, Priorities)]


@pytest.fixture
def table() -> ProcessTable:
    """Return a table that shows two ended programs."""
    return ProcessTable(ProcessTableSettings(ended_kept=2))


def test_kind_goes_with_the_call(table: ProcessTable) -> None:
    """A call carries its program's kind to the engine, and the record shows it."""
    admitted, _ = table.handle(SubmittedCall(call=call(), kind="coder"), 0.0)

    assert isinstance(admitted.message, AdmittedCall)
    assert admitted.message.program.kind == table._rows[P].record.kind == "coder"


def test_a_program_is_the_sum_of_its_calls(table: ProcessTable) -> None:
    """What is learnt of a program is what all its calls had, under its kind."""
    run(table, "p", 10.0, 20.0, 5.0, kind="a")
    run(table, "q", 7.0, kind="b")

    assert {"a": [35.0], "b": [7.0]} == samples(table)


def test_the_last_call_is_waited_for(table: ProcessTable) -> None:
    """A program that expires with calls under way is learnt from when the last of them ended, and once."""
    calls = [call(number=number) for number in range(2)]
    for each in calls:
        table.handle(SubmittedCall(call=each, kind="a"), 0.0)
    table.handle(ProgramExpired(program_id=P, at_ms=5.0), 5.0)
    table.handle(finished(calls[0], 10.0), 6.0)
    assert {} == samples(table)
    for event in (finished(calls[1], 30.0), finished(calls[1], 30.0), ProgramEnded(program_id=P, at_ms=7.0)):
        table.handle(event, 7.0)

    assert {"a": [40.0]} == samples(table)


def test_what_is_not_a_whole_program(table: ProcessTable) -> None:
    """A program that runs teaches nothing, and neither does a late call of one that is no longer visible."""
    late = call()
    table.handle(SubmittedCall(call=late), 0.0)
    for name in "pqrs":
        table.handle(ProgramEnded(program_id=ProgramId(name), at_ms=1.0), 1.0)
    table.handle(finished(late, 10.0), 2.0)
    table.handle(finished(call(ProgramId("running")), 10.0), 2.0)

    assert {} == samples(table)


def test_news_is_told_with_the_next_tick(table: ProcessTable) -> None:
    """Engines are told when the ranks changed, and again after a while, for those that started since."""
    assert [] == told(table.tick(RETELL_MS))
    for number in range(KNOWN_MIN):
        run(table, f"p{number}", 100.0, kind="a")
    first, none, again = (told(table.tick(RETELL_MS + at_ms)) for at_ms in (500, 1000, 500 + RETELL_MS))
    for number in range(FIT_EVERY):
        run(table, f"q{number}", 1000.0, kind="a")
    news = told(table.tick(1000 + 2 * RETELL_MS))

    assert [table._lessons.learnt.priorities()] == news
    assert ([], first) == (none, again)
    assert 1 == len(first)
    assert first != news
