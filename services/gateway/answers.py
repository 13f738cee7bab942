"""The parts of a call become one HTTP answer.

Rules:
* A call that fails before any of its answer was written is an HTTP error with its status; later, an `error` event.
* An event stream ends once, as its API has it (`shapes.py`), whatever happened before.
* A silent stream gets a comment line each heartbeat, so that no proxy takes it for dead.
"""

import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from autellix.schemas.base import ErrorBody
from autellix.schemas.messages import Chunk, Failed, Finished, Placed
from autellix.services.gateway.shapes import OPENAI, Shape
from autellix.services.gateway.streams import CallStream, Part

QUEUED: Final = b": queued\n\n"


class EventStream(StreamingResponse):
    """Server-sent events. Unlike its base it leaves it to the endpoint to notice that the client hung up."""

    media_type = "text/event-stream"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 ASGI's signature
        """Send the events."""
        await self.stream_response(send)


async def answer(
    stream: CallStream, shape: Shape, *, streamed: bool, heartbeat_s: float, request_id: str | None
) -> Response:
    """Return the answer to a call once its status is known: by its first part, or by a heartbeat of silence."""
    part = await stream.next(heartbeat_s) if streamed else await _last(stream)
    headers = _headers(stream, request_id)
    match part:
        case Failed():
            return failure(part, headers, shape)
        case Finished() if not streamed:
            return as_json(part.response, headers | _placed(part.placed))
        case _:
            headers |= {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
            headers |= _placed(part.placed) if part else {}
            return EventStream(_events(stream, part, shape, heartbeat_s), headers=headers)


def as_json(content: Any, headers: Mapping[str, str], *, status: int = 200) -> Response:
    """Return an answer in JSON."""
    return Response(msgspec.json.encode(content), status, dict(headers), "application/json")


def error(status: int, body: ErrorBody, headers: Mapping[str, str], shape: Shape = OPENAI) -> Response:
    """Return an error in the shape of its API."""
    return as_json(shape.error(status, body), headers, status=status)


def failure(failed: Failed, headers: Mapping[str, str], shape: Shape = OPENAI) -> Response:
    """Return the HTTP error that a failed call is."""
    status = failed.status if 400 <= failed.status <= 599 else 500
    retry = {} if failed.retry_after_s is None else {"Retry-After": str(max(1, math.ceil(failed.retry_after_s)))}
    return error(status, failed.error, {**headers, **retry}, shape)


async def _last(stream: CallStream) -> Part | None:
    """Return the call's last part; a plain answer is all in there."""
    while isinstance(part := await stream.next(), Chunk):
        pass
    return part


async def _events(stream: CallStream, part: Part | None, shape: Shape, heartbeat_s: float) -> AsyncIterator[bytes]:
    """Yield the event stream that begins with `part`."""
    while True:
        match part:
            case None:
                yield QUEUED
            case Chunk():
                yield b"".join(map(shape.event, part.data))
            case Finished():
                yield shape.end
                return
            case Failed():
                yield shape.failed(part.status, part.error) + shape.end
                return
        part = await stream.next(heartbeat_s)


def _headers(stream: CallStream, request_id: str | None) -> dict[str, str]:
    named = {
        "X-Request-Id": request_id or stream.call_id,
        "X-Autellix-Call-Id": stream.call_id,
        "X-Autellix-Program-Id": stream.program_id,
    }
    replayed = {"Idempotent-Replayed": "true"} if stream.replayed else {}
    return {name: _header(value) for name, value in named.items() if value} | replayed


def _placed(placed: Placed | None) -> dict[str, str]:
    """Return what the headers say of where an answer comes from."""
    if placed is None:
        return {}
    return {
        "X-Autellix-Engine": _header(placed.engine_id),
        "X-Autellix-Reason": _header(placed.reason),
        "X-Autellix-Queue-Ms": f"{placed.wait_ms:.3f}",
    }


def _header(text: str) -> str:
    """Return a text as a header can hold it."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)
