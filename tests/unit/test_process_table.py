"""The process table: what calls are stamped with, how they are folded in, and what is forgotten when."""

from collections.abc import Iterable
from typing import Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId
from autellix.schemas.messages import (
    AdmittedCall,
    Call,
    CallAdmitted,
    CallCancelled,
    CallFinished,
    CallRouted,
    Failed,
    GetProgram,
    ListPrograms,
    ProgramEnded,
    ProgramExpired,
    ProgramFacts,
    ProgramList,
    ProgramRecord,
    ProgramStarted,
    SubmittedCall,
)
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Out, Reply
from autellix.services.process_table.core import THREADS_KEPT, ProcessTable

P = ProgramId("p")
E0 = EngineId("e0")
INBOX = Reply("_INBOX.1")


def call(number: int, program_id: ProgramId = P, **fields: Any) -> Call:
    """Return a call that arrives at ten times its number."""
    known: dict[str, Any] = {
        "call_id": CallId(f"c{number}"),
        "program_id": program_id,
        "thread_id": ThreadId("main"),
        "api": "/v1/chat/completions",
        "model": "m",
        "body": b"{}",
        "stream": False,
        "reply_to": "_INBOX.1",
        "arrival_at_ms": number * 10.0,
    }
    return Call(**{**known, **fields})


def admit(table: ProcessTable, arriving: Call) -> ProgramFacts:
    """Let a call arrive and return the facts it is stamped with."""
    admitted, event = table.handle(SubmittedCall(call=arriving), arriving.arrival_at_ms)
    assert (admitted.subject, type(event.message)) == (subjects.CALL_ADMITTED, CallAdmitted)
    assert isinstance(admitted.message, AdmittedCall)
    assert admitted.message.call == arriving
    return admitted.message.program


def finished(ended: Call, at_ms: float, **fields: Any) -> CallFinished:
    """Return the end of a call."""
    return CallFinished(
        call_id=ended.call_id,
        program_id=ended.program_id,
        thread_id=ended.thread_id,
        engine_id=E0,
        at_ms=at_ms,
        arrival_at_ms=ended.arrival_at_ms,
        **fields,
    )


def record(table: ProcessTable, program_id: ProgramId = P, now_ms: float = 0.0) -> ProgramRecord:
    """Return a program's row as a client gets it."""
    (out,) = table.handle(GetProgram(program_id=program_id), now_ms, INBOX)
    assert isinstance(out.message, ProgramRecord)
    return out.message


def shown(table: ProcessTable, **fields: bool) -> list[ProgramId]:
    """Return the programs of the list, in its order."""
    outs: Iterable[Out] = table.handle(ListPrograms(**fields), 0.0, INBOX)
    (message,) = [out.message for out in outs]
    assert isinstance(message, ProgramList)
    return [program.program_id for program in message.programs]


@pytest.fixture
def table() -> ProcessTable:
    """Return a table that shows two ended programs."""
    return ProcessTable(ProcessTableSettings(ended_kept=2))


def test_call_is_stamped_with_its_program(table: ProcessTable) -> None:
    """A call carries what its program had attained and waited when it arrived, and its home."""
    first = call(1)
    assert admit(table, first) == ProgramFacts()
    table.handle(CallRouted(call_id=first.call_id, program_id=P, thread_id=first.thread_id, at_ms=11.0, engine_id=E0,
                            reason="", becomes_home=True), 11.0)  # fmt: skip
    table.handle(finished(first, 60.0, service_ms=40.0, wait_ms=9.0), 60.0)
    facts = admit(table, call(7))

    assert (facts.service_ms, facts.critical_path_ms, facts.waiting_ms, facts.home_engine) == (40.0, 40.0, 9.0, E0)


def test_parallel_calls(table: ProcessTable) -> None:
    """Twenty calls at once add up to their sum, and to the longest of them on the critical path."""
    calls = [call(number, thread_id=ThreadId(f"t{number}")) for number in range(20)]
    facts = [admit(table, each) for each in calls]
    for number, each in enumerate(calls):
        table.handle(finished(each, 500.0, service_ms=10.0 + number, output_tokens=50), 500.0)
    row = record(table)

    assert facts == [facts[0]] * 20
    assert (row.service_ms, row.critical_path_ms) == (390.0, 29.0)
    assert (row.calls, row.live_calls, row.output_tokens, len(row.threads)) == (20, 0, 1000, 20)


def test_cancelled_and_failed_calls_are_charged(table: ProcessTable) -> None:
    """A program whose client hangs up has attained what it used."""
    gone = call(1)
    admit(table, gone)
    end = CallCancelled(call_id=gone.call_id, program_id=P, thread_id=gone.thread_id, at_ms=90.0, arrival_at_ms=10.0,
                        service_ms=70.0, output_tokens=299)  # fmt: skip
    table.handle(end, 90.0)

    assert admit(table, call(10)).service_ms == 70.0
    assert record(table).output_tokens == 299


def test_call_twice(table: ProcessTable) -> None:
    """A call that comes twice while it lives is passed on again, and said and counted once; after its end it is not."""
    twice = call(1)
    admit(table, twice)

    (again,) = table.handle(SubmittedCall(call=twice), 11.0)
    assert again.subject == subjects.CALL_ADMITTED
    table.handle(finished(twice, 20.0, service_ms=5.0), 20.0)
    assert list(table.handle(SubmittedCall(call=twice), 21.0)) == []
    assert (record(table).calls, record(table).live_calls) == (1, 0)


def test_threads(table: ProcessTable) -> None:
    """A thread shows its live call, and what its ended ones had."""
    one, two = call(1), call(5)
    admit(table, one)
    table.handle(finished(one, 40.0, service_ms=25.0, wait_ms=5.0), 40.0)
    admit(table, two)
    thread = record(table).threads[ThreadId("main")]

    assert (thread.calls, thread.service_ms, thread.wait_ms) == (1, 25.0, 5.0)
    assert (thread.arrival_at_ms, thread.live_call) == (50.0, "c5")


def test_threads_are_bounded(table: ProcessTable) -> None:
    """A program that names a new thread for each call keeps those that were active last."""
    for number in range(THREADS_KEPT + 50):
        table.handle(finished(call(number, thread_id=ThreadId(f"t{number}")), 1.0), 1.0)
        table.handle(finished(call(10_000 + number), 1.0), 1.0)
    threads = record(table).threads

    assert len(threads) == THREADS_KEPT
    assert {"main", f"t{THREADS_KEPT + 49}"} <= set(threads)
    assert "t0" not in threads


def test_busy_time(table: ProcessTable) -> None:
    """Busy is the time with a live call: overlap counts once, interrupts do not, and asking does not change it."""
    one, two, three = call(0), call(1), call(10)
    admit(table, one)
    admit(table, two)
    assert record(table, now_ms=15.0).busy_ms == 15.0
    table.handle(finished(one, 12.0), 20.0)
    table.handle(finished(two, 30.0), 31.0)
    admit(table, three)
    table.handle(finished(three, 120.0), 120.0)

    assert record(table, now_ms=1000.0).busy_ms == 30.0 + 20.0


def test_states(table: ProcessTable) -> None:
    """A program runs from its start to its end or expiry; the first of these counts."""
    table.handle(ProgramStarted(program_id=P, name="agent", at_ms=1.0), 1.0)
    assert (record(table).state, record(table).name, record(table).started_at_ms) == ("running", "agent", 1.0)
    table.handle(ProgramExpired(program_id=P, at_ms=9.0), 9.0)
    table.handle(ProgramEnded(program_id=P, at_ms=10.0), 10.0)

    assert (record(table).state, record(table).ended_at_ms) == ("expired", 9.0)


def test_list(table: ProcessTable) -> None:
    """The list is oldest first; ended programs are left out when they are not wanted."""
    for number, name in enumerate("abc"):
        table.handle(ProgramStarted(program_id=ProgramId(name), at_ms=number), 0.0)
    table.handle(ProgramEnded(program_id=ProgramId("b"), at_ms=9.0), 9.0)

    assert shown(table) == ["a", "b", "c"]
    assert shown(table, include_ended=False) == ["a", "c"]


def test_unknown_program(table: ProcessTable) -> None:
    """Asking for a program that is not there is a 404, and makes no row."""
    (out,) = table.handle(GetProgram(program_id=P), 0.0, INBOX)

    assert isinstance(out.message, Failed)
    assert (out.message.status, out.message.error.code) == (404, "program_not_found")
    assert shown(table) == []


def test_ended_programs_are_bounded(table: ProcessTable) -> None:
    """Of ended programs the last few stay visible; ten thousand one-call programs leave nothing else."""
    for number in range(10_000):
        program_id = ProgramId(f"p{number}")
        only = call(number, program_id)
        admit(table, only)
        table.handle(finished(only, 1.0, prompt_tokens=5), 1.0)
        table.handle(ProgramEnded(program_id=program_id, at_ms=2.0), 2.0)

    assert shown(table) == ["p9998", "p9999"]
    assert not table._prompts._seen
    assert not table._prompts._arrived


def test_late_end_of_a_call(table: ProcessTable) -> None:
    """A call that ends after its program is charged to it, and what was learnt for its next prompt is forgotten."""
    late = call(1)
    admit(table, late)
    table.handle(ProgramEnded(program_id=P, at_ms=20.0), 20.0)
    table.handle(finished(late, 30.0, service_ms=15.0, prompt_tokens=5), 30.0)

    assert (record(table).state, record(table).service_ms, record(table).live_calls) == ("ended", 15.0, 0)
    assert not table._prompts._seen


def test_later_than_visible(table: ProcessTable) -> None:
    """What is heard of a program that is no longer visible does not bring it back."""
    late, later = call(1), call(2)
    admit(table, late)
    for name in (P, "q", "r", "s"):
        table.handle(ProgramEnded(program_id=ProgramId(name), at_ms=20.0), 20.0)
    table.handle(finished(late, 30.0, prompt_tokens=5), 30.0)
    table.handle(ProgramStarted(program_id=P, at_ms=0.0), 31.0)
    table.handle(ProgramExpired(program_id=P, at_ms=32.0), 32.0)
    admit(table, later)

    assert shown(table) == ["r", "s"]
    assert not table._prompts._seen


@pytest.mark.parametrize("others", [0, 5])
def test_session_used_again(table: ProcessTable, others: int) -> None:
    """A program that starts after its end, seen or forgotten, is a new one that has attained nothing."""
    first, second = call(1), call(100)
    admit(table, first)
    table.handle(finished(first, 20.0, service_ms=9.0), 20.0)
    table.handle(ProgramEnded(program_id=P, at_ms=30.0), 30.0)
    for number in range(others):
        table.handle(ProgramEnded(program_id=ProgramId(f"o{number}"), at_ms=40.0), 40.0)
    table.handle(ProgramStarted(program_id=P, name="again", at_ms=900.0), 900.0)
    facts = admit(table, second)
    table.handle(ProgramStarted(program_id=P, name="again", at_ms=900.0), 900.0)

    assert facts.service_ms == 0.0
    assert (record(table).state, record(table).name, record(table).live_calls) == ("running", "again", 1)
    table.handle(ProgramEnded(program_id=P, at_ms=2000.0), 2000.0)
    assert record(table).ended_at_ms == 2000.0


def test_by_name() -> None:
    """A program may be asked for by its name; of several of one name it is the last."""
    table = ProcessTable(ProcessTableSettings())
    for number in (1, 2):
        event = ProgramStarted(program_id=ProgramId(f"p{number}"), name="agent", source="codex", at_ms=1.0)
        table.handle(event, 1.0)
    (found,) = table.handle(GetProgram(program_id=ProgramId("agent")), 1.0, INBOX)
    (nobody,) = table.handle(GetProgram(program_id=ProgramId("")), 1.0, INBOX)

    assert isinstance(found.message, ProgramRecord)
    assert (found.message.program_id, found.message.source) == ("p2", "codex")
    assert isinstance(nobody.message, Failed)


def test_list_is_bounded() -> None:
    """Who asks for a part gets the youngest that run and those that ended last, without threads if so asked."""
    table = ProcessTable(ProcessTableSettings())
    for number in range(6):
        program_id = ProgramId(f"p{number}")
        admit(table, call(number, program_id))
        if number % 2:
            table.handle(ProgramEnded(program_id=program_id, at_ms=100.0), 100.0)
    (listed,) = table.handle(ListPrograms(ended_max=2, running_max=1, with_threads=False), 100.0, INBOX)
    (none,) = table.handle(ListPrograms(ended_max=0, running_max=0), 100.0, INBOX)

    assert isinstance(listed.message, ProgramList)
    assert [(each.program_id, each.threads) for each in listed.message.programs] == [("p3", {}), ("p4", {}), ("p5", {})]
    assert isinstance(none.message, ProgramList)
    assert none.message.programs == []
    assert record(table, ProgramId("p4")).threads
