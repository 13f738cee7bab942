"""What the session manager does about calls that are lost between it and the load balancer."""

import itertools
from typing import Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.ids import CallId, EngineId
from autellix.schemas.messages import (
    Call,
    CallCancelled,
    CallEvent,
    CallFailed,
    CallFinished,
    CallRouted,
    CancelCalls,
    EndSession,
    Failed,
    ProgramEnded,
    ProgramFacts,
    ReleasedCall,
    SubmitCall,
    SubmittedCall,
)
from autellix.services.config import SessionManagerSettings
from autellix.services.core import Reply
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.unrouted import AGAIN_TICKS, CANCELLED_TICKS, PATIENCE_TICKS

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
INBOX = Reply("_INBOX.1")


@pytest.fixture
def sessions() -> SessionManager:
    """Return a session manager that numbers its ids."""
    numbers = itertools.count(1)
    return SessionManager(SessionManagerSettings(), new_id=lambda: f"id{next(numbers)}", secret=b"key")


def submit(sessions: SessionManager) -> Call:
    """Submit a call and return it as it goes on."""
    outs = sessions.handle(SubmitCall(body=BODY), 0.0, INBOX)
    (call,) = [out.message.call for out in outs if isinstance(out.message, SubmittedCall)]
    return call


def about(call: Call, event: type[CallEvent], **fields: Any) -> Any:
    """Return an event of a call."""
    return event(call_id=call.call_id, program_id=call.program_id, thread_id=call.thread_id, at_ms=1.0, **fields)


def wait(sessions: SessionManager, ticks: int = PATIENCE_TICKS) -> list[tuple[str, Any]]:
    """Let time pass and return the subjects and messages of what is published."""
    return [(out.subject, out.message) for _ in range(ticks) for out in sessions.tick(1.0)]


def test_lost_call_ends(sessions: SessionManager) -> None:
    """A call that nobody routes is passed on again, then cancelled, failed for all to hear, and answered: once."""
    call = submit(sessions)
    early = wait(sessions, PATIENCE_TICKS - 1)
    (cancel_subject, order), (_, event), (inbox, frame) = wait(sessions, 1)
    later = wait(sessions)

    again = (subjects.CALL_SUBMITTED, SubmittedCall(call=call))
    assert (early, later) == ([again] * len(AGAIN_TICKS), [])
    assert [type(message) for message in (order, event, frame)] == [CancelCalls, CallFailed, Failed]
    assert (cancel_subject, order.call_id) == (subjects.CALL_CANCEL, call.call_id)
    assert (inbox, frame.status, frame.error.code) == (INBOX.subject, 503, "not_routed")


def test_lost_call_lets_its_program_end(sessions: SessionManager) -> None:
    """The failure of a lost call is an end like any other: the program it made ends with it."""
    submit(sessions)
    _, (_, failed), _ = wait(sessions)[-3:]

    assert [type(out.message) for out in sessions.handle(failed, 2.0)] == [ProgramEnded]


@pytest.mark.parametrize("how", ["routed", "finished"])
def test_news_of_a_call(sessions: SessionManager, how: str) -> None:
    """A call that was routed, or has ended, is not lost however long it runs; another one is."""
    call, other = submit(sessions), submit(sessions)
    routed = about(call, CallRouted, engine_id=EngineId("e0"), reason="")
    sessions.handle(routed if how == "routed" else about(call, CallFinished, arrival_at_ms=0.0), 1.0)
    ended: list[CallId] = [message.call_id for _, message in wait(sessions) if isinstance(message, CallFailed)]

    assert ended == [other.call_id]


def test_call_that_was_given_back_is_sent_again(sessions: SessionManager) -> None:
    """To the balancer, as its engine did."""
    released = ReleasedCall(call=submit(sessions), program=ProgramFacts(), engine_id=EngineId("e0"))
    sessions.handle(released, 1.0)
    heard = []
    for _ in range(PATIENCE_TICKS - 1):
        for said in wait(sessions, 1):
            heard.append(said)
            sessions.handle(released, 1.0)  # it hears what it says there

    assert heard == [(subjects.CALL_RELEASED, released)] * len(AGAIN_TICKS)
    assert [type(message) for _, message in wait(sessions, 1)] == [CancelCalls, CallFailed, Failed]


@pytest.mark.parametrize("then", ["routed", "lost"])
def test_a_call_that_its_engine_gave_back(sessions: SessionManager, then: str) -> None:
    """A call that was given back needs an engine anew: it is lost if none is chosen for it in time."""
    call = submit(sessions)
    routed = about(call, CallRouted, engine_id=EngineId("e0"), reason="")
    sessions.handle(routed, 1.0)
    wait(sessions)
    sessions.handle(ReleasedCall(call=call, program=ProgramFacts(), engine_id=EngineId("e0")), 1.0)
    if then == "routed":
        sessions.handle(routed, 1.0)
    ended = [message.call_id for _, message in wait(sessions) if isinstance(message, CallFailed)]

    assert ([call.call_id] if then == "lost" else []) == ended


@pytest.mark.parametrize("how", ["call", "program", "end"])
def test_a_call_cancelled_on_its_way_is_not_passed_on_again(sessions: SessionManager, how: str) -> None:
    """An engine that came up since would know of no order to cancel it: it ends here, once, and so does its program."""
    call = submit(sessions)
    orders = {
        "call": CancelCalls(call_id=call.call_id),
        "program": CancelCalls(program_id=call.program_id),
        "end": EndSession(program_id=call.program_id),
    }
    sessions.handle(orders[how], 0.0, INBOX)
    early = wait(sessions, CANCELLED_TICKS - 1)
    (subject, order), (_, event), (inbox, frame) = wait(sessions, 1)
    over = [type(out.message) for out in sessions.handle(event, 2.0)]

    assert early == []
    assert (subject, order) == (subjects.CALL_CANCEL, CancelCalls(call_id=call.call_id, program_id=call.program_id))
    assert isinstance(event, CallCancelled)
    assert (inbox, frame.status, frame.error.code) == (INBOX.subject, 499, "cancelled")
    assert over == ([] if how == "end" else [ProgramEnded])
    assert wait(sessions, 100) == []


@pytest.mark.parametrize("news", ["routed", "cancelled"])
def test_a_cancelled_call_that_an_engine_has_is_ended_there(sessions: SessionManager, news: str) -> None:
    """The engine that has it knows what it attained, so that nothing is said of it here."""
    call = submit(sessions)
    sessions.handle(CancelCalls(call_id=call.call_id), 0.0, INBOX)
    routed = about(call, CallRouted, engine_id=EngineId("e0"), reason="")
    sessions.handle(routed if news == "routed" else about(call, CallCancelled, arrival_at_ms=0.0), 1.0)

    assert wait(sessions, CANCELLED_TICKS) == []
