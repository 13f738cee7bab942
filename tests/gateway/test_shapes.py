"""APIs that word their answers in their own way, responses and Anthropic's messages: streamed, failed and refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import httpx

    from tests.gateway.conftest import Front, PlayedCall

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
BODIES: dict[str, dict[str, Any]] = {
    MESSAGES: {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": True},
    RESPONSES: {"model": "tiny", "input": "hi", "stream": True},
}
APIS = pytest.mark.parametrize("api", [MESSAGES, RESPONSES])


async def ask(front: Front, api: str, **fields: Any) -> tuple[asyncio.Task[httpx.Response], PlayedCall]:
    """Post a request; return the answer to come and the accepted call."""
    asking = asyncio.create_task(front.http.post(api, json={**BODIES[api], **fields}))
    call = await front.calls.get()
    await call.accept()
    return asking, call


@APIS
async def test_stream(front: Front, api: str) -> None:
    """Events have the name that their object has as type, and the last of them is the end."""
    asking, call = await ask(front, api)
    await call.chunk(1, {"type": "a.start", "n": 1}, {"type": "a_delta"})
    await call.chunk(2, {"type": "a.stop"})
    await call.finish(3)
    answer = await asking

    assert call.request.api == api
    assert answer.headers["content-type"].startswith("text/event-stream")
    expected = (
        'event: a.start\ndata: {"type":"a.start","n":1}\n\n'
        'event: a_delta\ndata: {"type":"a_delta"}\n\n'
        'event: a.stop\ndata: {"type":"a.stop"}\n\n'
    )
    assert answer.text == expected


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        (MESSAGES, '{"type":"error","error":{"type":"overloaded_error","message":"it broke"}}'),
        (RESPONSES, '{"type":"error","code":"broken","message":"it broke","param":null}'),
    ],
)
async def test_error_mid_stream(front: Front, api: str, expected: str) -> None:
    """A stream that fails after it began ends with an error event."""
    asking, call = await ask(front, api)
    await call.chunk(1, {"type": "a"})
    await call.fail(503)

    assert (await asking).text == f'event: a\ndata: {{"type":"a"}}\n\nevent: error\ndata: {expected}\n\n'


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (404, "not_found_error"), (429, "rate_limit_error"), (500, "api_error")],
)
async def test_anthropic_errors(front: Front, status: int, kind: str) -> None:
    """Anthropic's clients go by the type of an error, which follows from its status."""
    asking, call = await ask(front, MESSAGES)
    await call.fail(status)
    answer = await asking

    assert status == answer.status_code
    assert answer.json() == {"type": "error", "error": {"type": kind, "message": "it broke"}}


@pytest.mark.parametrize("path", [MESSAGES, "/v1/messages/count_tokens"])
async def test_refused_here(front: Front, path: str) -> None:
    """What the gateway itself refuses is in the API's shape, too."""
    answer = await front.http.post(path, content=b"[]")

    assert 400 == answer.status_code
    assert ("error", "invalid_request_error") == (answer.json()["type"], answer.json()["error"]["type"])


@APIS
async def test_whole_answer(front: Front, api: str) -> None:
    """An answer that is not streamed is the response in the last frame."""
    asking, call = await ask(front, api, stream=False)
    await call.finish(1, {"id": "x"})

    assert (await asking).json() == {"id": "x"}
