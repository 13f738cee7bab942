"""Calls on their way in: which program, which thread, what is refused, and what is said in which order."""

import itertools
from collections.abc import Iterable
from math import inf, nan
from typing import Any

import msgspec
import pytest

from autellix.schemas import subjects
from autellix.schemas.base import Message
from autellix.schemas.identity import program_of_response
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import (
    Accepted,
    Call,
    CallCancelled,
    CallFailed,
    CallFinished,
    CallSubmitted,
    Failed,
    SessionStarted,
    StartSession,
    SubmitCall,
    SubmittedCall,
)
from autellix.services.config import SessionManagerSettings
from autellix.services.core import Out, Reply
from autellix.services.session_manager.__main__ import carried
from autellix.services.session_manager.core import SessionManager

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
INBOX = Reply("_INBOX.1")
ENDS = {"finished": CallFinished, "cancelled": CallCancelled, "failed": CallFailed}


def manager(**settings: Any) -> SessionManager:
    """Return a session manager that numbers its ids."""
    numbers = itertools.count(1)
    return SessionManager(SessionManagerSettings(**settings), new_id=lambda: f"id{next(numbers)}", secret=b"key")


def kinds(outs: Iterable[Out]) -> list[str]:
    """Return the types of what is published, in order."""
    return [type(out.message).__name__ for out in outs]


def only(outs: Iterable[Out], kind: type[Any]) -> Any:
    """Return the one message of this type."""
    (found,) = [out.message for out in outs if isinstance(out.message, kind)]
    return found


def submit(sessions: SessionManager, **fields: Any) -> Call:
    """Submit a call and return it as it goes on."""
    outs = sessions.handle(SubmitCall(body=BODY, **fields), 0.0, INBOX)
    submitted: SubmittedCall = only(outs, SubmittedCall)
    return submitted.call


def start(sessions: SessionManager) -> ProgramId:
    """Start a program and return its id."""
    started: SessionStarted = only(sessions.handle(StartSession(), 0.0, INBOX), SessionStarted)
    return started.program_id


def end(sessions: SessionManager, call: Call, how: str = "finished") -> list[Out]:
    """Let a call end."""
    known = {"call_id": call.call_id, "program_id": call.program_id, "thread_id": call.thread_id}
    failure = {"status": 500, "error": {"message": "", "type": ""}} if how == "failed" else {}
    event = {**known, "type": f"call.{how}", "at_ms": 0.0, "arrival_at_ms": 0.0, **failure}
    return list(sessions.handle(msgspec.convert(event, ENDS[how]), 0.0))


def refusal(sessions: SessionManager, message: Message) -> Failed:
    """Return the one answer of a request that is refused."""
    (out,) = sessions.handle(message, 0.0, INBOX)
    assert isinstance(out.message, Failed)
    assert out.subject == INBOX.subject
    return out.message


def test_call_of_a_started_program() -> None:
    """A call goes on with its program, is accepted under its ids, and is made known."""
    sessions = manager()
    program_id = start(sessions)
    outs = list(sessions.handle(SubmitCall(body=BODY, program_id=program_id, deadline_ms=500.0), 1000.0, INBOX))
    call = only(outs, SubmittedCall).call
    accepted, event = only(outs, Accepted), only(outs, CallSubmitted)

    assert sorted(kinds(outs)) == ["Accepted", "CallSubmitted", "SubmittedCall"]
    assert call.program_id == accepted.program_id == event.program_id == program_id
    assert call.call_id == accepted.call_id == event.call_id
    assert (call.arrival_at_ms, call.deadline_at_ms, call.reply_to) == (1000.0, 1500.0, "_INBOX.1")
    assert msgspec.json.decode(call.body) == BODY
    assert {out.subject for out in outs} == {
        subjects.CALL_SUBMITTED,
        "_INBOX.1",
        "autellix.events.call.submitted",
    }


def test_program_is_known_before_its_first_call() -> None:
    """The event that a program began goes out before its call does."""
    outs = list(manager().handle(SubmitCall(body=BODY), 0.0, INBOX))

    assert kinds(outs)[0] == "ProgramStarted"


def test_json_is_answered_in_json() -> None:
    """A client that spoke JSON is accepted in JSON, and its call says so to who answers it."""
    outs = list(manager().handle(SubmitCall(body=BODY), 0.0, Reply("_INBOX.1", as_json=True)))

    assert [out.as_json for out in outs if out.subject == "_INBOX.1"] == [True]
    assert only(outs, SubmittedCall).call.reply_json


@pytest.mark.parametrize("fields", [{}, {"session": ""}, {"session": "   "}, {"program_id": ""}])
def test_no_or_blank_id_is_a_new_program(fields: dict[str, str]) -> None:
    """A call that names nothing is a program of its own, never the same one as another such call."""
    sessions = manager()
    calls = [submit(sessions, **fields) for _ in range(50)]

    assert len({call.program_id for call in calls}) == 50


def test_single_call_program_ends_with_its_call() -> None:
    """A program that was started for one call ends when that call does, once."""
    sessions = manager()
    call = submit(sessions)

    assert kinds(end(sessions, call)) == ["ProgramEnded"]
    assert end(sessions, call) == []


@pytest.mark.parametrize("how", ["finished", "failed", "cancelled"])
def test_named_session(how: str) -> None:
    """Calls that name one session are of one program, which goes on however they end."""
    sessions = manager()
    first = submit(sessions, session="agent")
    assert end(sessions, first, how=how) == []
    second = submit(sessions, session="agent")
    other = submit(sessions, session="agent 2")

    assert first.program_id == second.program_id != other.program_id


def test_named_session_is_the_same_everywhere() -> None:
    """Every instance with the secret derives one id of a name, which does not show the name; another secret another."""
    ids = []
    for secret in (b"key", b"key", b"another"):
        sessions = SessionManager(SessionManagerSettings(), new_id=lambda: "id", secret=secret)
        ids.append(submit(sessions, session="agent").program_id)

    assert ids[0] == ids[1] != ids[2]
    assert "agent" not in ids[0]
    assert len(ids[0]) == 32


def test_threads() -> None:
    """A call without a thread gets an idle one: a sequential program is one thread, calls side by side are several."""
    sessions = manager()
    program_id = start(sessions)
    one, two, three = (submit(sessions, program_id=program_id) for _ in range(3))
    end(sessions, two)
    again = submit(sessions, program_id=program_id)
    own = submit(sessions, program_id=program_id, thread_id="mine")

    assert [call.thread_id for call in (one, two, three, again, own)] == ["main", "t2", "t3", "t2", "mine"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"body": {}}, "model"),
        ({"body": {**BODY, "temperature": nan}}, "temperature"),
        ({"body": {"model": "m", "prompt": ""}, "api": "/v1/completions"}, "prompt"),
        ({"deadline_ms": 0.0}, "deadline_ms"),
        ({"deadline_ms": -1.0}, "deadline_ms"),
        ({"deadline_ms": nan}, "deadline_ms"),
        ({"deadline_ms": inf}, "deadline_ms"),
        ({"durable": True}, "id"),
        ({"durable": True, "id": ""}, "id"),
        ({"durable": True, "id": "a\nb"}, "id"),
        ({"durable": True, "id": "x" * 257}, "id"),
        ({"durable": True, "id": "call-1"}, "id"),
        ({"id": "mine"}, "id"),
        ({"durable": True, "id": "mine", "body": {**BODY, "stream": True}}, "stream"),
        ({"durable": True, "id": "mine", "body": {}}, "model"),
        ({"session": "a\nb"}, "session"),
        ({"session": "a" * 257}, "session"),
        ({"session": "\ud800"}, "session"),
        ({"thread_id": "\x00"}, "thread_id"),
        ({"thread_id": "\x1b[31m"}, "thread_id"),
        ({"program_id": "p\r\n"}, "program_id"),
        ({"parents": ("ok", "x" * 257)}, "parents"),
        ({"parents": ("c",) * 1025}, "parents"),
    ],
)
def test_bad_call(fields: dict[str, Any], param: str) -> None:
    """What is wrong with a call is one 400 that names it; no program begins and nothing else is said."""
    failed = refusal(manager(), SubmitCall(**{"body": BODY, **fields}))

    assert (failed.status, failed.error.param) == (400, param)
    assert not failed.retry_safe


def test_refused_call_leaves_no_trace() -> None:
    """After refusals as many programs may begin as before."""
    sessions = manager(programs_max=1)
    for _ in range(3):
        refusal(sessions, SubmitCall(body={}, session="agent"))

    assert submit(sessions, session="agent").thread_id == "main"


def test_body_too_large() -> None:
    """A body beyond the limit is refused with the limit in the text; one of just that size is not."""
    limit = len(msgspec.json.encode(BODY))
    larger = SubmitCall(body={**BODY, "x": ""})
    failed = refusal(manager(body_bytes_max=limit), larger)

    assert (failed.status, failed.error.code) == (413, "body_too_large")
    assert str(limit) in failed.error.message
    assert submit(manager(body_bytes_max=limit))


def test_limit_that_the_bus_sets() -> None:
    """A body may take half of what the bus carries, and no more than the settings say."""
    settings = SessionManagerSettings(body_bytes_max=1000)

    assert [carried(settings, max_payload).body_bytes_max for max_payload in (400, 2000, 9000)] == [200, 1000, 1000]


@pytest.mark.parametrize("program_id", ["never", "x" * 200, "ümläut", " "])
def test_unknown_program(program_id: str) -> None:
    """A call of a program that does not live is a 404, not a new program."""
    failed = refusal(manager(), SubmitCall(body=BODY, program_id=ProgramId(program_id)))

    assert (failed.status, failed.error.code, failed.error.param) == (404, "program_not_found", "program_id")


@pytest.mark.parametrize("request_", [StartSession(), SubmitCall(body=BODY), SubmitCall(body=BODY, session="other")])
def test_too_many_programs(request_: StartSession | SubmitCall) -> None:
    """At the bound nothing more begins; the refusal is the server's word and safe to retry, and running ones go on."""
    sessions = manager(programs_max=1)
    program_id = start(sessions)
    failed = refusal(sessions, request_)

    assert (failed.status, failed.error.type, failed.retry_safe) == (503, "server_error", True)
    assert failed.retry_after_s is not None
    assert submit(sessions, program_id=program_id)


def test_too_many_calls_of_a_program() -> None:
    """A program at its limit is told to wait, in words for programs; others, and it when one has ended, are served."""
    sessions = manager(program_calls_max=2)
    program_id = start(sessions)
    first, _ = submit(sessions, program_id=program_id), submit(sessions, program_id=program_id)
    failed = refusal(sessions, SubmitCall(body=BODY, program_id=program_id))
    other = submit(sessions)
    end(sessions, first)

    assert (failed.status, failed.error.type) == (429, "rate_limit_error")
    assert (failed.error.code, failed.retry_safe) == ("too_many_calls_of_program", True)
    assert failed.retry_after_s is not None
    assert other.program_id != program_id
    assert submit(sessions, program_id=program_id)


def test_trace_goes_on() -> None:
    """A call carries the span that its request was part of."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    outs = list(manager().handle(SubmitCall(body=BODY), 0.0, Reply("_INBOX.1", trace=trace)))

    assert only(outs, SubmittedCall).call.trace == trace


def test_response_names_its_program() -> None:
    """Who goes on from a response is of its program, whichever gateway it comes to; clients do not choose the id."""
    sessions = manager()
    body = {"model": "m", "input": "Hi", "request_id": "mine"}
    outs = list(sessions.handle(SubmitCall(body=body, api="/v1/responses", session="s"), 0.0, INBOX))
    call = only(outs, SubmittedCall).call
    made = msgspec.json.decode(call.body)["request_id"]
    following = submit(sessions, session=program_of_response(made))

    assert program_of_response(made) == call.program_id == following.program_id


def test_nobody_waits_for_the_answer() -> None:
    """A call whose answer nobody would hear is not run, and begins no program."""
    sessions = manager()

    assert list(sessions.handle(SubmitCall(body=BODY), 0.0)) == []
    assert list(sessions.tick(1e12)) == []
