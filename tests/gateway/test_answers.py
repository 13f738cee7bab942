"""What a client of the gateway sees of a call's frames, over real HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import encode
from autellix.schemas.ids import CallId
from autellix.schemas.messages import Failed

if TYPE_CHECKING:
    from tests.gateway.conftest import Front

CHAT = "/v1/chat/completions"
STREAM = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


async def test_plain_answer(front: Front) -> None:
    """The response in the last frame is the HTTP answer, with the call's ids, engine and wait in the headers."""
    asking, call = await front.ask()
    await call.finish(1, {"id": "x", "choices": [], "text": "naïve \U0001fae0"})
    answer = await asking

    assert answer.status_code == 200
    assert answer.json() == {"id": "x", "choices": [], "text": "naïve \U0001fae0"}
    expected = {
        "content-type": "application/json",
        "x-request-id": "call-1",
        "x-autellix-call-id": "call-1",
        "x-autellix-program-id": "program-1",
        "x-autellix-engine": "e0",
        "x-autellix-reason": "home engine",
        "x-autellix-queue-ms": "12.500",
    }
    assert expected == {name: answer.headers[name] for name in expected}


async def test_body_passes_as_it_is(front: Front) -> None:
    """The request reaches the pipeline with every field, known or not, and with the API it was posted to."""
    body = {"prompt": [1, 2], "odd": {"deep": [None, True, 1.5, 2**63]}, "model": "tiny"}
    asking = asyncio.create_task(front.http.post("/v1/completions", json=body))
    call = await front.calls.get()
    await call.finish(1, {})
    await asking

    assert call.request.body == body
    assert call.request.api == "/v1/completions"


async def test_stream_bytes(front: Front) -> None:
    """Each object of a chunk is one event, in order, and the end is one `[DONE]`."""
    asking, call = await front.ask(STREAM)
    await call.chunk(1, {"n": 1}, {"n": 2})
    await call.chunk(2, {"text": "é\n"})
    await call.finish(3)
    answer = await asking

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-autellix-call-id"] == "call-1"
    placed = [answer.headers[f"x-autellix-{name}"] for name in ("engine", "reason", "queue-ms")]
    assert placed == ["e0", "home engine", "12.500"]
    expected = 'data: {"n":1}\n\ndata: {"n":2}\n\ndata: {"text":"é\\n"}\n\ndata: [DONE]\n\n'
    assert answer.content.decode() == expected


async def test_error_before_the_first_chunk(front: Front) -> None:
    """A stream that fails before it began is an HTTP error, with the body and the time to wait that the frame says."""
    asking, call = await front.ask(STREAM)
    await call.fail(429, retry_after_s=2.2)
    answer = await asking

    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "3"
    expected = {"message": "it broke", "type": "server_error", "param": None, "code": "broken"}
    assert answer.json() == {"error": expected}


async def test_full_engines(front: Front) -> None:
    """A call that the load balancer refuses since engines are full is a 503 that says when to come again."""
    asking, call = await front.ask(headers={"x-autellix-deadline-ms": "5000"})
    error = ErrorBody(message="full", type="server_error", code="engine_full")
    await call.send(
        encode(Failed(status=503, error=error, call_id=CallId("call-1"), retry_after_s=12.3, retry_safe=True))
    )
    answer = await asking

    assert 5000.0 == call.request.deadline_ms
    assert (503, "13", "engine_full") == (
        answer.status_code,
        answer.headers["retry-after"],
        answer.json()["error"]["code"],
    )


async def test_call_is_logged(front: Front) -> None:
    """A call is one line in the log: which engine answered it, or why it failed."""
    with capture_logs() as lines:
        asking, call = await front.ask()
        await call.finish(1, {})
        await asking
        asking, call = await front.ask()
        await call.fail(500)
        await asking

    ids = {"api": CHAT, "call_id": "call-1", "program_id": "program-1"}
    common = {"event": "call", "log_level": "info", **ids}
    assert lines == [
        {**common, "outcome": "finished", "engine_id": "e0"},
        {**common, "outcome": "broken", "error": "it broke"},
    ]


async def test_refused_without_acceptance(front: Front) -> None:
    """A call that the session manager refuses is answered with the refusal."""
    asking = asyncio.create_task(front.http.post(CHAT, json=STREAM))
    call = await front.calls.get()
    await call.fail(400)
    answer = await asking

    assert answer.status_code == 400
    assert front.cancelled.empty()


async def test_error_mid_stream(front: Front) -> None:
    """A stream that fails after it began says so in an event, then ends with `[DONE]`."""
    asking, call = await front.ask(STREAM)
    await call.chunk(1, {"n": 1})
    await call.fail(500)
    answer = await asking

    error = '{"error":{"message":"it broke","type":"server_error","param":null,"code":"broken"}}'
    assert answer.status_code == 200
    assert answer.text == f'data: {{"n":1}}\n\ndata: {error}\n\ndata: [DONE]\n\n'


async def test_lost_frame(front: Front) -> None:
    """A gap in the numbers ends the stream with an error instead of a shorter answer, and the call is cancelled."""
    asking, call = await front.ask(STREAM)
    await call.chunk(1, {"n": 1})
    await call.chunk(3, {"n": 3})
    await call.finish(4)
    answer = await asking

    events = answer.text.split("\n\n")
    assert events[0] == 'data: {"n":1}'
    assert '"code":"lost_frames"' in events[1]
    assert events[2:] == ["data: [DONE]", ""]
    assert (await front.cancelled.get()).call_id == "call-1"


async def test_stale_frames(front: Front) -> None:
    """A frame delivered twice is shown once, and nothing follows the end."""
    asking, call = await front.ask(STREAM)
    await call.chunk(1, {"n": 1})
    await call.chunk(1, {"n": 1})
    await call.finish(2)
    await call.fail(500)
    answer = await asking

    assert answer.text == 'data: {"n":1}\n\ndata: [DONE]\n\n'


async def test_unreadable_frame(front: Front) -> None:
    """Bytes that are no frame end the call with 502, and it is cancelled."""
    asking, call = await front.ask()
    await call.send(b"\xc1")
    answer = await asking

    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "bad_frame"
    assert (await front.cancelled.get()).call_id == "call-1"


async def test_nobody_takes_calls_in(front: Front) -> None:
    """When the bus says that nobody listens, the answer is 503 at once, and tells when to retry."""
    asking = asyncio.create_task(front.http.post(CHAT, json=STREAM))
    call = await front.calls.get()
    await call.send(b"")  # what NATS answers to a request without responders
    answer = await asking

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "no_session_manager"


async def test_request_id_is_echoed(front: Front) -> None:
    """A client's own id of its request comes back; one that cannot stand in a header is replaced by the call's."""
    asking, call = await front.ask(headers={"X-Request-Id": "mine-7"})
    await call.finish(1, {})
    sane = await asking
    asking, call = await front.ask(headers={"X-Request-Id": "a" * 500})
    await call.finish(1, {})
    insane = await asking

    assert sane.headers["x-request-id"] == "mine-7"
    assert insane.headers["x-request-id"] == "call-1"


async def test_heartbeat(hasty: Front) -> None:
    """A stream that waits begins with a comment and gets one each heartbeat; then its answer follows."""
    asking, call = await hasty.ask(STREAM, stream=True)
    answer = await asking
    parts = answer.aiter_raw()
    first, second = await anext(parts), await anext(parts)
    await call.chunk(1, {"n": 1})
    await call.finish(2)
    rest = b"".join([part async for part in parts])

    assert answer.status_code == 200
    assert (first, second) == (b": queued\n\n", b": queued\n\n")
    assert rest.replace(b": queued\n\n", b"") == b'data: {"n":1}\n\ndata: [DONE]\n\n'


async def test_not_accepted(hasty: Front) -> None:
    """A call that nobody takes in is 503 in time; accepted later, it is cancelled."""
    answer = await hasty.http.post(CHAT, json=STREAM)
    call = await hasty.calls.get()
    await call.accept()

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "not_accepted"
    assert (await hasty.cancelled.get()).call_id == "call-1"
