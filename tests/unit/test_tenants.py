"""Tenants: in ids and subjects, in the session manager, and in what the process table tells."""

from typing import Any

import pytest

from autellix.schemas import subjects, tenants
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import (
    Accepted,
    CancelCalls,
    EndSession,
    Failed,
    GetProgram,
    ListPrograms,
    ProgramList,
    ProgramRecord,
    ProgramStarted,
    SessionStarted,
    SessionTouched,
    StartSession,
    SubmitCall,
    SubmittedCall,
    TouchSession,
)
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Out, Reply
from autellix.services.process_table.core import ProcessTable
from autellix.services.session_manager.core import SessionManager
from tests.unit.test_session_manager import BODY, manager

ACME, ZEN, NOBODY = (Reply("_INBOX.1", tenant=tenant) for tenant in ("acme", "zen", ""))


def answered(sessions: Any, message: Any, reply: Reply) -> Any:
    """Return what is said to who asks."""
    (answer,) = [out.message for out in sessions.handle(message, 0.0, reply) if out.subject == reply.subject]
    return answer


def orders(sessions: SessionManager, message: Any, reply: Reply) -> list[CancelCalls]:
    """Return the orders to engines that a request leads to."""
    outs: list[Out] = list(sessions.handle(message, 0.0, reply))
    return [out.message for out in outs if isinstance(out.message, CancelCalls)]


@pytest.mark.parametrize(
    ("program", "tenant"),
    [("acme~x", "acme"), ("x", ""), ("~x", ""), ("A~x", ""), ("a.b~x", ""), ("acme~x~y", "acme"), ("", "")],
)
def test_tenant_of(program: str, tenant: str) -> None:
    """A program's id names its tenant; what only looks like it names nobody."""
    assert tenant == tenants.tenant_of(ProgramId(program))


def test_ids_and_subjects() -> None:
    """They go both ways, and without a tenant they are bare."""
    subject = tenants.subject_of("acme", subjects.CALLS_SUBMIT)

    assert "autellix.tenants.acme.calls.submit" == subject
    assert "acme" == tenants.asked_by(subject)
    assert subjects.CALLS_SUBMIT == tenants.subject_of("", subjects.CALLS_SUBMIT)
    assert "" == tenants.asked_by(subjects.CALLS_SUBMIT)
    assert "autellix.tenants.*.calls.submit" == tenants.any_subject_of(subjects.CALLS_SUBMIT)
    assert ["acme~u", "u"] == [tenants.program_id(name, "u") for name in ("acme", "")]


@pytest.mark.parametrize("message", [StartSession(), SubmitCall(body=BODY), SubmitCall(body=BODY, session="s")])
def test_programs_are_of_who_begins_them(message: Any) -> None:
    """However a program begins, its id says whose it is."""
    answer: SessionStarted | Accepted = answered(manager(), message, ACME)

    assert answer.program_id.startswith("acme~")


def test_others_programs_are_none() -> None:
    """Touch, end, join by id or as a name, cancel: for another tenant it is as if it were not there."""
    sessions = manager()
    mine = answered(sessions, StartSession(), ACME).program_id
    call = answered(sessions, SubmitCall(body=BODY, program_id=mine), ACME).call_id
    for message in (TouchSession(program_id=mine), SubmitCall(body=BODY, program_id=mine)):
        failed = answered(sessions, message, ZEN)
        assert (404, "program_not_found") == (failed.status, failed.error.code)
    assert answered(sessions, SubmitCall(body=BODY, session=mine), ZEN).program_id.startswith("zen~")
    answered(sessions, EndSession(program_id=mine), ZEN)
    cancels = (CancelCalls(call_id=call), CancelCalls(program_id=mine), CancelCalls(call_id=call, program_id=mine))
    assert [[], [], []] == [orders(sessions, message, ZEN) for message in cancels]

    assert isinstance(answered(sessions, TouchSession(program_id=mine), ACME), SessionTouched)
    assert [call] == [order.call_id for order in orders(sessions, CancelCalls(call_id=call), ACME)]
    assert [call] == [order.call_id for order in orders(sessions, CancelCalls(program_id=mine), ACME)]


def test_who_runs_it_all_may() -> None:
    """On bare subjects a tenant's program can be ended and its calls cancelled."""
    sessions = manager()
    mine = answered(sessions, StartSession(), ACME).program_id
    call = answered(sessions, SubmitCall(body=BODY, program_id=mine), ACME).call_id

    assert [call] == [order.call_id for order in orders(sessions, EndSession(program_id=mine), NOBODY)]
    assert 404 == answered(sessions, TouchSession(program_id=mine), ACME).status


def test_one_name_of_two() -> None:
    """The same name is another program for each tenant, always the same one, and none of those without a tenant."""
    sessions = manager()
    asked = SubmitCall(body=BODY, session="s")
    ids = [answered(sessions, asked, reply).program_id for reply in (ACME, ZEN, NOBODY, ACME)]

    assert ids[0] == ids[3]
    assert 3 == len(set(ids))
    assert ids[0].partition("~")[2] != ids[1].partition("~")[2]


def test_limits_of_a_tenant() -> None:
    """One that is at its limit is told to wait, 429; another is not, and what ended makes room."""
    sessions = manager(tenant_programs_max=2, tenant_calls_max=2)
    first = answered(sessions, StartSession(), ACME).program_id
    answered(sessions, SubmitCall(body=BODY, program_id=first), ACME)
    answered(sessions, SubmitCall(body=BODY, program_id=first), ACME)
    calls = answered(sessions, SubmitCall(body=BODY, program_id=first), ACME)
    begins = answered(sessions, SubmitCall(body=BODY), ACME)
    answered(sessions, StartSession(), ACME)
    programs = answered(sessions, StartSession(), ACME)
    others = [answered(sessions, message, ZEN) for message in (StartSession(), SubmitCall(body=BODY))]
    answered(sessions, EndSession(program_id=first), ACME)

    codes = [(failed.status, failed.error.code) for failed in (calls, begins, programs)]
    assert [(429, "too_many_calls_of_tenant")] * 2 + [(429, "too_many_programs_of_tenant")] == codes
    assert not [answer for answer in others if isinstance(answer, Failed)]
    assert isinstance(answered(sessions, StartSession(), ACME), SessionStarted)


def test_a_refused_call_begins_nothing() -> None:
    """A call that would begin a program, and finds no room for itself, leaves no program behind."""
    sessions = manager(calls_max=1)
    answered(sessions, SubmitCall(body=BODY), NOBODY)
    outs = list(sessions.handle(SubmitCall(body=BODY, session="s"), 0.0, NOBODY))

    assert ["Failed"] == [type(out.message).__name__ for out in outs]
    assert (503, "too_many_calls") == (outs[0].message.status, outs[0].message.error.code)  # type: ignore[attr-defined]
    assert 1 == len(sessions._sessions)


def test_counts_come_back() -> None:
    """What is live counts after a restart, too."""
    sessions, again = manager(), manager(tenant_calls_max=1)
    answered(sessions, SubmitCall(body=BODY, session="s"), ACME)
    again.restore(sessions.snapshot(), 0.0)

    assert 429 == answered(again, SubmitCall(body=BODY, session="s"), ACME).status
    assert isinstance(answered(again, SubmitCall(body=BODY), ZEN), Accepted)


def test_the_table_tells_ones_own() -> None:
    """A tenant sees its programs, by id and name; who runs it all sees all."""
    table = ProcessTable(ProcessTableSettings())
    for number, program in enumerate(("acme~1", "zen~1", "bare")):
        started = ProgramStarted(program_id=ProgramId(program), name="n", source="session", at_ms=float(number))
        list(table.handle(started, 0.0))

    def listed(reply: Reply) -> list[str]:
        answer: ProgramList = answered(table, ListPrograms(), reply)
        return [record.program_id for record in answer.programs]

    def got(program: str, reply: Reply) -> Any:
        return answered(table, GetProgram(program_id=ProgramId(program)), reply)

    assert [["acme~1"], ["zen~1"], ["acme~1", "zen~1", "bare"]] == [listed(reply) for reply in (ACME, ZEN, NOBODY)]
    assert isinstance(got("acme~1", ACME), ProgramRecord)
    assert [404, 404] == [got(program, ZEN).status for program in ("acme~1", "bare")]
    assert ["acme~1", "zen~1", "bare"] == [got("n", reply).program_id for reply in (ACME, ZEN, NOBODY)]
    assert "acme" == got("acme~1", NOBODY).tenant


def test_the_newest_are_ones_own() -> None:
    """Asked for the last program a tenant gets its own last one."""
    table = ProcessTable(ProcessTableSettings())
    for program in ("acme~1", "zen~1"):
        list(table.handle(ProgramStarted(program_id=ProgramId(program), at_ms=0.0), 0.0))

    assert ["acme~1"] == [each.program_id for each in answered(table, ListPrograms(running_max=1), ACME).programs]


def test_hops_carry_the_tenant() -> None:
    """A call on its way names its program, and so its tenant."""
    outs = manager().handle(SubmitCall(body=BODY), 0.0, ACME)
    (hop,) = [out.message for out in outs if isinstance(out.message, SubmittedCall)]

    assert "acme" == tenants.tenant_of(hop.call.program_id)
