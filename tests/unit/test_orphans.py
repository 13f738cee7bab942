"""Calls that were given up and that nobody has any more."""

import itertools
from typing import Any

import pytest

from autellix.schemas.ids import CallId
from autellix.schemas.messages import (
    Call,
    CallCancelled,
    CallFinished,
    CancelCalls,
    EndSession,
    ProgramExpired,
    SubmitCall,
    SubmittedCall,
)
from autellix.services.config import SessionManagerSettings
from autellix.services.core import Reply
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.orphans import PATIENCE_TICKS

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
INBOX = Reply("_INBOX.1")
SETTINGS = SessionManagerSettings()


@pytest.fixture
def sessions() -> SessionManager:
    """Return a session manager that numbers its ids."""
    numbers = itertools.count(1)
    return SessionManager(SETTINGS, new_id=lambda: f"id{next(numbers)}", secret=b"key")


def submit(sessions: SessionManager) -> Call:
    """Submit a call of a named program, of which an engine is known to have it."""
    outs = sessions.handle(SubmitCall(body=BODY, session="mine"), 0.0, INBOX)
    (call,) = [out.message.call for out in outs if isinstance(out.message, SubmittedCall)]
    sessions._unrouted.settle(call.call_id)
    return call


def wait(sessions: SessionManager, ticks: int = PATIENCE_TICKS) -> list[Any]:
    """Let time pass and return what is said."""
    return [out.message for _ in range(ticks) for out in sessions.tick(1.0)]


@pytest.mark.parametrize("how", ["its client", "its program", "all of its program"])
def test_call_that_nobody_has_ends(sessions: SessionManager, how: str) -> None:
    """Given up in whatever way, a call whose end does not come ends after a while, once."""
    call = submit(sessions)
    orders: dict[str, Any] = {
        "its client": CancelCalls(call_id=call.call_id),
        "its program": EndSession(program_id=call.program_id),
        "all of its program": CancelCalls(program_id=call.program_id),
    }
    sessions.handle(orders[how], 0.0, INBOX)
    early = wait(sessions, PATIENCE_TICKS - 1)
    (event,) = wait(sessions, 1)
    later = wait(sessions)

    assert early == later == []
    assert isinstance(event, CallCancelled)
    assert (event.call_id, event.program_id, event.thread_id) == (call.call_id, call.program_id, call.thread_id)


def test_call_that_ends(sessions: SessionManager) -> None:
    """A call that ends in time ends once."""
    call = submit(sessions)
    sessions.handle(CancelCalls(call_id=call.call_id), 0.0, INBOX)
    known: dict[str, Any] = {"call_id": call.call_id, "program_id": call.program_id, "thread_id": call.thread_id}
    sessions.handle(CallFinished(**known, at_ms=1.0, arrival_at_ms=0.0), 1.0)

    assert wait(sessions) == []


def test_program_can_expire(sessions: SessionManager) -> None:
    """The end that is said here counts as any other: the program is idle from then on."""
    call = submit(sessions)
    sessions.handle(CancelCalls(call_id=call.call_id), 0.0, INBOX)
    (event,) = wait(sessions)
    sessions.handle(event, 1.0)
    expired = [out.message for out in sessions.tick(SETTINGS.ttl_s * 1000 + 2.0)]

    assert [type(each) for each in expired] == [ProgramExpired]


def test_unknown_call(sessions: SessionManager) -> None:
    """To give up what was never there says nothing later."""
    sessions.handle(CancelCalls(call_id=CallId(submit(sessions).call_id[:-1])), 0.0, INBOX)

    assert wait(sessions) == []
