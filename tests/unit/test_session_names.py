"""Programs by the names that clients give them, and what a program's record says of where the name came from."""

import itertools
from typing import Any

import pytest

from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import (
    EndSession,
    ProgramEnded,
    ProgramStarted,
    SessionStarted,
    StartSession,
    SubmitCall,
    SubmittedCall,
)
from autellix.services.config import SessionManagerSettings
from autellix.services.core import Reply
from autellix.services.session_manager.core import SessionManager

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
INBOX = Reply("_INBOX.1")


@pytest.fixture
def sessions() -> SessionManager:
    """Return a session manager."""
    numbers = itertools.count(1)
    return SessionManager(SessionManagerSettings(), new_id=lambda: f"id{next(numbers)}", secret=b"key")


def said(sessions: SessionManager, message: Any, kind: type[Any]) -> list[Any]:
    """Return the messages of one type that answer a message."""
    return [out.message for out in sessions.handle(message, 0.0, INBOX) if isinstance(out.message, kind)]


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({}, "none"),
        ({"session": "agent"}, "session"),
        ({"session": "agent", "source": "claude-code"}, "claude-code"),
        ({"session": "agent", "source": "made up"}, "session"),
        ({"source": "made up"}, "none"),
    ],
)
def test_source(sessions: SessionManager, fields: dict[str, str], source: str) -> None:
    """The event that begins a program says what named it, in words of ours only."""
    (started,) = said(sessions, SubmitCall(body=BODY, **fields), ProgramStarted)  # type: ignore[arg-type]

    assert started.source == source


def test_source_of_a_start(sessions: SessionManager) -> None:
    """A program that was started says so."""
    (started,) = said(sessions, StartSession(), ProgramStarted)

    assert started.source == "started"


def test_kind_of_who_counts_first(sessions: SessionManager) -> None:
    """What kind of agent a program is tells its first call that is computed: to count tokens says nothing of it."""
    turns = BODY["messages"]
    count = {"model": "m", "messages": turns}
    message = {**count, "max_tokens": 5, "system": "Be brief."}
    (counted,) = said(sessions, SubmitCall(body=count, api="/v1/messages/count_tokens", session="agent"), SubmittedCall)
    (asked,) = said(sessions, SubmitCall(body=message, api="/v1/messages", session="agent"), SubmittedCall)

    assert counted.kind == ""
    assert asked.kind


def test_id_as_a_name(sessions: SessionManager) -> None:
    """Who can only send a name may send the id of a program that was started."""
    (started,) = said(sessions, StartSession(), SessionStarted)
    (submitted,) = said(sessions, SubmitCall(body=BODY, session=started.program_id), SubmittedCall)

    assert submitted.call.program_id == started.program_id


def test_end_by_name(sessions: SessionManager) -> None:
    """A program may be ended by the name that its client gave it, and begins anew when it is named again."""
    call = SubmitCall(body=BODY, session="agent")
    (submitted,) = said(sessions, call, SubmittedCall)
    (ended,) = said(sessions, EndSession(program_id=ProgramId("agent")), ProgramEnded)
    (again,) = said(sessions, call, ProgramStarted)

    assert ended.program_id == submitted.call.program_id == again.program_id
    assert said(sessions, EndSession(program_id=ProgramId("nobody")), ProgramEnded) == []
