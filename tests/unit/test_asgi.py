"""vLLM's application called in-process: what its answers become, however they are cut, and how a call is hung up."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.executor import Answer, Output, Piece, Refusal
from autellix.engine.vllm_adapter.asgi import EventStream, Part, exchange, outputs

CHUNKS = [{"n": 1}, {"text": "déjà vu — 🫠\u2028"}, {"n": 3}]
STREAM = b"".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode() for chunk in CHUNKS)
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "it broke", "type": "BadRequestError", "param": "stop", "code": 400}}\n\n'


async def collected(status: int, bodies: Iterable[bytes], *, stream: bool) -> list[Output]:
    """Return the outputs of an answer that comes in these pieces."""

    async def parts() -> AsyncIterator[Part]:
        yield Part(status, b"")
        for body in bodies:
            yield Part(None, body)

    return [output async for output in outputs(parts(), stream=stream)]


async def test_whole_answer() -> None:
    """A plain answer is decoded when it is whole."""
    assert await collected(200, [b'{"a"', b":1}", b""], stream=False) == [Answer({"a": 1})]


async def test_stream() -> None:
    """A stream is its chunks, those of one part together, and one end."""
    assert await collected(200, [STREAM, b"", DONE], stream=True) == [Piece(CHUNKS), Answer(None)]
    assert await collected(200, [STREAM + DONE], stream=True) == [Piece(CHUNKS), Answer(None)]


@pytest.mark.parametrize("rest", [b"", b"data: [DONE]", b'data: {"n"'])
async def test_stream_that_breaks_off(rest: bytes) -> None:
    """A stream that stops without its last event has no end: silence is not success."""
    assert await collected(200, [STREAM, rest], stream=True) == [Piece(CHUNKS)]


@pytest.mark.parametrize("stream", [True, False])
async def test_refusal(stream: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The application's own error is passed on: its status, text, type and parameter."""
    body = json.dumps({"error": {"message": "too long", "type": "BadRequestError", "param": "messages", "code": 400}})
    (found,) = await collected(400, [body.encode()], stream=stream)

    assert isinstance(found, Refusal)
    assert (found.status, found.error.message, found.error.type, found.error.param) == (
        400,
        "too long",
        "BadRequestError",
        "messages",
    )


@pytest.mark.parametrize(
    ("blamed", "param", "code"),
    [
        ("body.stop.list[str].0", "stop", None),
        ("body.messages.0.role", "messages", None),
        ("body.0.Function.name", "body.0.Function.name", None),
        ("logit_bias", "logit_bias", None),
        ("input_tokens", "input_tokens", "context_length_exceeded"),
        ("input_text", "input_text", "context_length_exceeded"),
        (None, None, None),
    ],
)
async def test_what_is_to_blame(blamed: str | None, param: str | None, code: str | None) -> None:
    """What vLLM blames is named as OpenAI names it: the request's field, and the code that clients go by."""
    body = json.dumps({"error": {"message": "", "type": "", "param": blamed, "code": 400}})
    (found,) = await collected(400, [body.encode()], stream=False)

    assert isinstance(found, Refusal)
    assert (found.error.param, found.error.code) == (param, code)


@pytest.mark.parametrize("body", [b"", b"Internal Server Error", b"[]", b'{"error": null}', b'{"error": "no"}', b"{}"])
async def test_refusal_without_a_reason(body: bytes) -> None:
    """An error that says nothing becomes a plain server error with its status."""
    (found,) = await collected(500, [body], stream=False)

    assert isinstance(found, Refusal)
    assert (found.status, found.error.message, found.error.type) == (500, "The engine answered 500.", "server_error")


async def test_error_in_a_stream() -> None:
    """An error after the first chunk ends the stream with its own status, and loses nothing that came before."""
    found = await collected(200, [STREAM + ERROR + DONE], stream=True)

    assert found[0] == Piece(CHUNKS)
    assert isinstance(found[1], Refusal)
    assert (found[1].status, found[1].error.param, len(found)) == (400, "stop", 2)


@pytest.mark.parametrize("event", [b'data: {"error": "no"}\n\n', b'data: {"error": {"code": "x"}}\n\n'])
async def test_odd_error_in_a_stream(event: bytes) -> None:
    """An error of an unknown shape is a server error."""
    (found,) = await collected(200, [event], stream=True)

    assert isinstance(found, Refusal)
    assert found.status == 500


@given(st.lists(st.integers(0, len(STREAM + DONE)), max_size=12))
def test_any_cut(cuts: list[int]) -> None:
    """However the bytes are cut, between characters or inside one, the events are the same."""
    edges, events, found = [0, *sorted(cuts), len(STREAM + DONE)], EventStream(), []
    for start, stop in pairwise(edges):
        found += events.feed((STREAM + DONE)[start:stop])

    assert found == CHUNKS
    assert events.done


def test_lines_of_other_kinds() -> None:
    """Comments, named events, carriage returns and missing spaces are no matter."""
    assert EventStream().feed(b': ping\r\n\r\nevent: x\nid: 1\ndata:{"n":1}\r\n\r\ndata: \n\n') == [{"n": 1}]


class App:
    """An ASGI application that a test plays."""

    def __init__(self, *bodies: bytes, error: Exception | None = None) -> None:
        self.bodies = bodies
        self.error = error
        self.scope: dict[str, Any] = {}
        self.request: dict[str, Any] = {}
        self.answered = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer with the bodies, then fail, or hold the line until the client is gone."""
        self.scope, self.request = scope, await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for body in self.bodies:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if self.error:
            raise self.error
        self.answered.set()
        try:
            assert await receive() == {"type": "http.disconnect"}
        finally:
            self.left.set()


async def test_request() -> None:
    """The application sees a POST with its path, headers and body, and may end by itself."""
    app = App(b"one", error=RuntimeError("no more"))
    parts = exchange(app, "/v1/completions", b'{"a":1}', {"X-Request-Id": "call-1"})
    found = [await anext(parts), await anext(parts)]

    assert found == [Part(200, b""), Part(None, b"one")]
    assert (app.scope["method"], app.scope["path"], app.request["body"]) == ("POST", "/v1/completions", b'{"a":1}')
    assert (b"x-request-id", b"call-1") in app.scope["headers"]
    with pytest.raises(RuntimeError, match="no more"):
        await anext(parts)


async def test_hang_up() -> None:
    """Closing the answer early ends the application's work on it before the close returns."""
    app = App(b"one", b"two")
    async with aclosing(exchange(app, "/", b"", {})) as parts:
        await anext(parts)
        await app.answered.wait()

    assert app.left.is_set()


async def test_cancelled_reader() -> None:
    """A reader that is cancelled while it waits takes the application with it."""
    app = App()

    async def read() -> None:
        async with aclosing(exchange(app, "/", b"", {})) as parts:
            async for _ in parts:
                pass

    reading = asyncio.create_task(read())
    await app.answered.wait()
    reading.cancel()
    await asyncio.wait({reading})

    assert reading.cancelled()
    assert app.left.is_set()


@pytest.mark.parametrize("last", ["message_stop", "response.completed", "response.incomplete", "response.failed"])
async def test_streams_with_named_events(last: str) -> None:
    """A stream of messages or responses ends with its last event; one that breaks off before has no end."""
    begun = b'event: begun\ndata: {"type": "begun"}\n\n'
    ended = f'event: {last}\ndata: {{"type": "{last}"}}\n\n'.encode()

    assert await collected(200, [begun, ended], stream=True) == [
        Piece([{"type": "begun"}]),
        Piece([{"type": last}]),
        Answer(None),
    ]
    assert await collected(200, [begun], stream=True) == [Piece([{"type": "begun"}])]
