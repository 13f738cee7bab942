"""Which program an HTTP request belongs to."""

from __future__ import annotations

import msgspec
import pytest

from autellix.schemas.codec import Decoder
from autellix.schemas.messages import SubmitCall
from autellix.schemas.openai import InvalidRequestError
from autellix.services.gateway.identity import ID_BYTES_MAX, Identities
from autellix.services.gateway.submission import submission

CALLS: Decoder[SubmitCall] = Decoder(SubmitCall)
LIMIT = "é" * (ID_BYTES_MAX // 2)


def call(headers: dict[str, str], **body: object) -> SubmitCall:
    """Return what a request with these headers and fields submits."""
    return CALLS.decode(submission(headers, msgspec.json.encode(body), "/v1/completions", Identities()).payload)


@pytest.mark.parametrize(
    ("headers", "body", "session"),
    [
        ({}, {}, None),
        ({"x-session-id": ""}, {"session_id": "  "}, None),
        ({}, {"session_id": None}, None),
        ({}, {"session_id": "mine"}, "mine"),
        ({"x-session-id": " mine "}, {}, "mine"),
        ({"x-session-id": "header"}, {"session_id": "body"}, "header"),
        ({"x-session-id": " "}, {"session_id": "body"}, "body"),
        ({"x-session-id": LIMIT.encode().decode("latin-1")}, {}, LIMIT),
        ({}, {"session_id": LIMIT}, LIMIT),
    ],
)
def test_session(headers: dict[str, str], body: dict[str, str], session: str | None) -> None:
    """The header names the session, else the body; a blank name is none, never a shared one."""
    assert call(headers, **body).session == session


def test_program_and_thread() -> None:
    """The two headers name a program that was started, and a thread of it."""
    submitted = call({"x-autellix-program-id": "p", "x-autellix-thread-id": "t"})

    assert (submitted.program_id, submitted.thread_id) == ("p", "t")


def test_agent() -> None:
    """A header says what kind of agent it is; without it, or blank, the system prompt is left to tell."""
    assert ["coder", "", ""] == [
        call(headers).agent for headers in ({"x-autellix-agent": "coder"}, {"x-autellix-agent": " "}, {})
    ]


def test_deadline() -> None:
    """A header says how long the client would wait; without it, or blank, it has no deadline."""
    known = [
        call(headers).deadline_ms for headers in ({"x-autellix-deadline-ms": value} for value in ("2500", " 2.5 ", " "))
    ]

    assert [2500.0, 2.5, None, None] == [*known, call({}).deadline_ms]


def test_deadline_that_is_no_number() -> None:
    """A deadline that cannot be read is refused by the name of its header."""
    with pytest.raises(InvalidRequestError) as refused:
        call({"x-autellix-deadline-ms": "soon"})

    assert (400, "x-autellix-deadline-ms") == (refused.value.status, refused.value.body.param)


def test_body_keeps_its_session() -> None:
    """The fields of the body are not touched."""
    assert call({}, session_id=" a ", x=1).body == {"session_id": " a ", "x": 1}


def test_context_for_routers() -> None:
    """What tells routers whose call it is goes no further: engines refuse it. Other arguments stay."""
    submitted = call({}, vllm_xargs={"agentic_context": {"program_id": "p"}, "mine": 1})

    assert (submitted.session, submitted.source) == ("p", "agentic-context")
    assert submitted.body == {"vllm_xargs": {"mine": 1}}


def test_model_for_observers() -> None:
    """What is told of the model before anybody has checked it is short, and a text."""
    bodies: list[dict[str, object]] = [{"model": "m" * 5000}, {"model": 7}, {}]
    told = [submission({}, msgspec.json.encode(body), "/v1/completions", Identities()).model for body in bodies]

    assert told == ["m" * 256, "", ""]


def test_parents() -> None:
    """The calls whose answers this one needed go along."""
    assert call({"x-autellix-parent-ids": "call-1,call-2"}).parents == ("call-1", "call-2")


@pytest.mark.parametrize("value", ["x" * (ID_BYTES_MAX + 1), "é" * ID_BYTES_MAX, "a\nb", "a\x00", "\x9b31m", 7, ["a"]])
def test_unusable_session(value: object) -> None:
    """A name that is too long, is no text or holds control characters is refused by its field."""
    with pytest.raises(InvalidRequestError) as refused:
        call({}, session_id=value)

    assert (refused.value.status, refused.value.body.param) == (400, "session_id")


@pytest.mark.parametrize(("stream", "expected"), [(True, True), (False, False), (None, False), ("yes", False)])
def test_stream(stream: object, expected: object) -> None:
    """Only `true` asks for an event stream; what is no truth value is the session manager's to refuse."""
    assert submission({}, msgspec.json.encode({"stream": stream}), "/v1/completions", Identities()).stream is expected
