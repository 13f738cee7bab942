"""What the gateway refuses by itself, and how it tells; over real HTTP."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

if TYPE_CHECKING:
    from tests.gateway.conftest import Front

CHAT = "/v1/chat/completions"

MALFORMED = (
    b"",
    b'{"model": "tiny"',
    b'["model"]',
    b'"model"',
    b"null",
    b"{} {}",
    b'{"model": NaN}',
    b'{"model": "\xe9"}',
    '{"model": "tiny"}'.encode("utf-16"),
    b"\xef\xbb\xbf{}",
    b'{"model": "\\ud800"}',
    b'{"a":' + b"[" * 90_000 + b"]" * 90_000 + b"}",
    b'{"seed": 123456789012345678901234567890}',
    b'{"temperature": 1e999}',
    b'{"session_id": 7}',
    b'{"session_id": "a\\nb"}',
    b'{"session_id": "' + b"x" * 257 + b'"}',
)


async def test_malformed_bodies(hasty: Front) -> None:
    """A body that cannot be a call is one 400 in the OpenAI shape, and nothing is submitted."""
    answers = [await hasty.http.post(CHAT, content=body) for body in MALFORMED]

    assert [(answer.status_code, answer.json()["error"]["type"]) for answer in answers] == [
        (400, "invalid_request_error")
    ] * len(MALFORMED)
    assert all(answer.json()["error"]["message"] for answer in answers)
    assert hasty.calls.empty()


async def test_compressed_body(hasty: Front) -> None:
    """A body in a coding that is not understood is refused by name."""
    body = gzip.compress(b'{"model": "tiny"}')
    answer = await hasty.http.post(CHAT, content=body, headers={"Content-Encoding": "gzip"})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unsupported_encoding"


async def test_large_body(hasty: Front) -> None:
    """A body above the limit is 413 naming the limit, although the client had sent far more than was kept."""
    answer = await hasty.http.post(CHAT, content=b"x" * 20_000_000)

    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    assert "the limit is 200000" in answer.json()["error"]["message"]


@pytest.mark.parametrize("front", ["nats"], indirect=True)
async def test_larger_than_the_bus_carries(front: Front) -> None:
    """A body that HTTP allows and the bus does not is 413 naming the bus's limit."""
    answer = await front.http.post(CHAT, json={"text": "x" * front.bus.max_payload})

    assert answer.status_code == 413
    assert f"the limit is {front.bus.max_payload} bytes" in answer.json()["error"]["message"]


async def test_unusable_headers(hasty: Front) -> None:
    """Ids in headers obey the same bounds as in the body."""
    headers = (
        (b"X-Session-ID", b"x" * 257),
        (b"X-Session-ID", b"caf\xe9"),
        (b"X-Autellix-Program-Id", b"a\tb"),
        (b"X-Autellix-Thread-Id", b"x" * 257),
        (b"X-Autellix-Agent", b"x" * 257),
    )
    answers = [await hasty.http.post(CHAT, json={}, headers=[each]) for each in headers]

    expected = ["x-session-id", "x-session-id", "x-autellix-program-id", "x-autellix-thread-id", "x-autellix-agent"]
    assert [answer.json()["error"]["param"] for answer in answers] == expected
    assert [answer.status_code for answer in answers] == [400] * len(headers)


async def test_unknown_path(hasty: Front) -> None:
    """An unknown path is 404 in the OpenAI shape, a trailing slash included."""
    answers = [await hasty.http.get(path) for path in ("/v2/", "/v2/models", "/v1/models/none", "/health/")]

    assert [answer.status_code for answer in answers] == [404, 404, 404, 404]
    assert [answer.json()["error"]["code"] for answer in answers] == [
        "not_found",
        "not_found",
        "model_not_found",
        "not_found",
    ]


async def test_refusals_are_logged(hasty: Front) -> None:
    """A request that is refused is one line in the log, with its path and what it was answered."""
    with capture_logs() as lines:
        answers = [await hasty.http.post(CHAT, content=b"["), await hasty.http.get("/v2")]

    logged = [(line["event"], line["path"], line["status"], line["code"], line["error"]) for line in lines]
    errors = [answer.json()["error"] for answer in answers]
    assert logged == [
        ("refused", CHAT, 400, "invalid_json", errors[0]["message"]),
        ("refused", "/v2", 404, "not_found", errors[1]["message"]),
    ]


async def test_wrong_method(hasty: Front) -> None:
    """A wrong method is 405 in the OpenAI shape, with the methods that are allowed."""
    answer = await hasty.http.get(CHAT, headers={"X-Request-Id": "mine"})

    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.headers["x-request-id"] == "mine"
    assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("key", [b"Bearer caf\xe9", "Bearer \u201ckey\u201d".encode(), b"Bearer", b""])
async def test_odd_keys(hasty: Front, key: bytes) -> None:
    """Nobody is asked for a key: whatever stands there, no text included, is passed over."""
    asking = asyncio.create_task(hasty.http.post(CHAT, json={"model": "tiny"}, headers=[(b"Authorization", key)]))
    call = await hasty.calls.get()
    await call.accept()
    await call.finish(1, {"fine": True})

    assert (await asking).json() == {"fine": True}
