"""The life of a program: when it begins, expires and ends, and what happens to its calls then."""

import itertools
from collections.abc import Iterable
from math import inf, nan
from typing import Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import (
    Call,
    CallCancelled,
    CancelAccepted,
    CancelCalls,
    EndSession,
    Failed,
    ProgramExpired,
    ProgramStarted,
    SessionStarted,
    SessionTouched,
    StartSession,
    SubmitCall,
    SubmittedCall,
    TouchSession,
)
from autellix.services.config import SessionManagerSettings
from autellix.services.core import Out, Reply
from autellix.services.session_manager.core import SessionManager

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
INBOX = Reply("_INBOX.1")
TTL_MS = 1000.0


@pytest.fixture
def sessions() -> SessionManager:
    """Return a session manager whose programs live for a second of idleness."""
    numbers = itertools.count(1)
    return SessionManager(SessionManagerSettings(ttl_s=1.0), new_id=lambda: f"id{next(numbers)}", secret=b"key")


def kinds(outs: Iterable[Out]) -> list[str]:
    """Return the types of what is published, in order."""
    return [type(out.message).__name__ for out in outs]


def only(outs: Iterable[Out], kind: type[Any]) -> Any:
    """Return the one message of this type."""
    (found,) = [out.message for out in outs if isinstance(out.message, kind)]
    return found


def start(sessions: SessionManager, now_ms: float = 0.0) -> ProgramId:
    """Start a program and return its id."""
    started: SessionStarted = only(sessions.handle(StartSession(), now_ms, INBOX), SessionStarted)
    return started.program_id


def submit(sessions: SessionManager, now_ms: float = 0.0, **fields: Any) -> Call:
    """Submit a call and return it as it goes on."""
    outs = sessions.handle(SubmitCall(body=BODY, **fields), now_ms, INBOX)
    submitted: SubmittedCall = only(outs, SubmittedCall)
    return submitted.call


def cancelled(sessions: SessionManager, call: Call, now_ms: float = 0.0) -> list[Out]:
    """Let a call end."""
    event = CallCancelled(
        call_id=call.call_id, program_id=call.program_id, thread_id=call.thread_id, at_ms=now_ms, arrival_at_ms=0.0
    )
    return list(sessions.handle(event, now_ms))


def refusal(sessions: SessionManager, message: StartSession | CancelCalls | TouchSession) -> Failed:
    """Return the one answer of a request that is refused."""
    (out,) = sessions.handle(message, 0.0, INBOX)
    assert isinstance(out.message, Failed)
    return out.message


def expired(sessions: SessionManager, now_ms: float) -> list[ProgramId]:
    """Let time pass and return the programs that expired."""
    messages = [out.message for out in sessions.tick(now_ms)]
    assert all(isinstance(message, ProgramExpired) for message in messages)
    return [message.program_id for message in messages if isinstance(message, ProgramExpired)]


def test_idle_program_expires(sessions: SessionManager) -> None:
    """A program expires when it was idle for its time to live, once, and is then unknown."""
    program_id = start(sessions)

    assert expired(sessions, TTL_MS - 1) == []
    assert expired(sessions, TTL_MS) == [program_id]
    assert expired(sessions, 1e12) == []
    assert refusal(sessions, TouchSession(program_id=program_id)).status == 404


def test_touch_keeps_it_alive(sessions: SessionManager) -> None:
    """A touch starts the idle time anew and says how long it is."""
    program_id = start(sessions)
    outs = sessions.handle(TouchSession(program_id=program_id), 900.0, INBOX)

    assert [out.message for out in outs] == [SessionTouched(program_id=program_id, ttl_ms=TTL_MS)]
    assert expired(sessions, 1899.0) == []
    assert expired(sessions, 1900.0) == [program_id]


def test_live_call_keeps_it_alive(sessions: SessionManager) -> None:
    """A program with a live call never expires; its idle time begins when the last call ends."""
    program_id = start(sessions)
    one, two = (submit(sessions, program_id=program_id) for _ in range(2))
    cancelled(sessions, one, 10.0)

    assert expired(sessions, 50_000.0) == []
    cancelled(sessions, two, 60_000.0)
    assert expired(sessions, 60_999.0) == []
    assert expired(sessions, 61_000.0) == [program_id]


def test_own_time_to_live(sessions: SessionManager) -> None:
    """A program may ask for another time to live than the setting's."""
    outs = list(sessions.handle(StartSession(ttl_ms=50.0), 0.0, INBOX))
    started = only(outs, SessionStarted)

    assert started.ttl_ms == 50.0
    assert expired(sessions, 50.0) == [started.program_id]


@pytest.mark.parametrize("ttl_ms", [0.0, -1.0, nan, inf, 86_400_001.0])
def test_bad_time_to_live(sessions: SessionManager, ttl_ms: float) -> None:
    """A time to live without an end, or none at all, is refused and begins nothing."""
    assert refusal(sessions, StartSession(ttl_ms=ttl_ms)).error.param == "ttl_ms"
    assert expired(sessions, 1e15) == []


def test_everything_that_is_left_expires(sessions: SessionManager) -> None:
    """Thousands of programs whose clients left are gone after their time, without a question about them."""
    for number in range(5000):
        start(sessions, number / 10)
        cancelled(sessions, submit(sessions, number / 10), number / 10)

    assert len(expired(sessions, 2000.0)) == 5000
    assert not len(sessions._sessions)
    assert not sessions._sessions._expiry


def test_ended_programs_are_forgotten(sessions: SessionManager) -> None:
    """Programs that end, and sessions that are named again and again, leave nothing behind."""
    submit(sessions, session="stays")
    for _ in range(3000):
        call = submit(sessions, session="agent")
        sessions.handle(EndSession(program_id=call.program_id), 0.0, INBOX)

    assert len(sessions._sessions) == 1
    assert len(sessions._sessions._expiry) < 100


def test_named_session_comes_again(sessions: SessionManager) -> None:
    """A session that ended begins anew when it is named again, and does not expire by its earlier life."""
    first = submit(sessions, session="agent")
    sessions.handle(EndSession(program_id=first.program_id), 900.0, INBOX)
    outs = list(sessions.handle(SubmitCall(body=BODY, session="agent"), 950.0, INBOX))
    again = only(outs, SubmittedCall).call

    assert only(outs, ProgramStarted).program_id == first.program_id == again.program_id
    cancelled(sessions, again, 960.0)
    assert expired(sessions, 1001.0) == []
    assert expired(sessions, 1960.0) == [again.program_id]


def test_end_of_a_program(sessions: SessionManager) -> None:
    """Ending a program cancels its live calls one by one, makes the end known, and is then answered."""
    program_id = start(sessions)
    calls = [submit(sessions, program_id=program_id) for _ in range(3)]
    cancelled(sessions, calls[0])
    outs = list(sessions.handle(EndSession(program_id=program_id), 9.0, INBOX))

    assert kinds(outs) == ["CancelCalls", "CancelCalls", "ProgramEnded", "SessionEnded"]
    assert [out.message for out in outs[:2]] == [
        CancelCalls(call_id=call.call_id, program_id=program_id) for call in calls[1:]
    ]
    assert {out.subject for out in outs[:2]} == {subjects.CALL_CANCEL}


def test_end_twice(sessions: SessionManager) -> None:
    """Ending a program that has ended, or never was, is answered like the first time and says nothing else."""
    program_id = start(sessions)
    answers = [list(sessions.handle(EndSession(program_id=program_id), 0.0, INBOX)) for _ in range(2)]

    assert [kinds(outs) for outs in answers] == [["ProgramEnded", "SessionEnded"], ["SessionEnded"]]
    assert refusal(sessions, TouchSession(program_id=program_id)).status == 404


def test_cancel_of_a_call(sessions: SessionManager) -> None:
    """An order to cancel a call goes to the engines as it is, and is answered."""
    order = CancelCalls(call_id=CallId("call-1"))

    assert list(sessions.handle(order, 0.0, INBOX)) == [
        Out(subjects.CALL_CANCEL, order),
        Out("_INBOX.1", CancelAccepted()),
    ]


def test_cancel_of_a_program(sessions: SessionManager) -> None:
    """Cancelling a program's calls names each live one, so that the calls it makes later run."""
    program_id = start(sessions)
    call = submit(sessions, program_id=program_id)
    outs = list(sessions.handle(CancelCalls(program_id=program_id), 0.0, INBOX))

    assert [out.message for out in outs[:-1]] == [CancelCalls(call_id=call.call_id, program_id=call.program_id)]
    assert submit(sessions, program_id=program_id)


@pytest.mark.parametrize(
    "order",
    [
        CancelCalls(),
        CancelCalls(call_id=CallId(""), program_id=ProgramId("")),
        CancelCalls(call_id=CallId("x" * 100_000)),
    ],
)
def test_bad_cancel(sessions: SessionManager, order: CancelCalls) -> None:
    """An order that names nothing, or a name no call can have, is refused before an engine remembers it."""
    assert refusal(sessions, order).status == 400


def test_started_event_has_the_name(sessions: SessionManager) -> None:
    """The label of a program is in its first event; a label that could break a line is refused."""
    outs = sessions.handle(StartSession(name="night build"), 5.0, INBOX)

    assert only(outs, ProgramStarted).name == "night build"
    assert refusal(sessions, StartSession(name="a\nb")).error.param == "name"


def test_call_that_outlives_its_program(sessions: SessionManager) -> None:
    """The end of a call whose program is over changes nothing."""
    program_id = start(sessions)
    call = submit(sessions, program_id=program_id)
    sessions.handle(EndSession(program_id=program_id), 0.0, INBOX)

    assert cancelled(sessions, call) == []
