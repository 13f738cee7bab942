"""Calls an ASGI application in-process, as an HTTP server would: vLLM's own OpenAI application, without a socket."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple

import msgspec

from autellix.engine.executor import Answer, Output, Piece, Refusal
from autellix.schemas.base import ErrorBody

CODES = dict.fromkeys(("input_tokens", "input_text"), "context_length_exceeded")
"""OpenAI's error codes for the parameters that vLLM blames, where clients go by the code."""

LAST_EVENTS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
"""What the streams of `/v1/messages` and `/v1/responses` end with, in place of `[DONE]`."""

MESSAGE_MAX = 4000
"""Characters of an error's text: vLLM quotes what it blames, which may be as large as the request."""

HANG_UP_S = 2.0
"""How long an application may take to notice that its client hung up."""


class Part(NamedTuple):
    """A part of an HTTP answer: its status comes first, then bytes."""

    status: int | None
    body: bytes


async def exchange(app: Any, path: str, body: bytes, headers: dict[str, str]) -> AsyncGenerator[Part, None]:
    """Send one request and yield the answer's parts; closing the iterator early is the client hanging up."""
    parts: asyncio.Queue[Part | None] = asyncio.Queue()
    request = iter([{"type": "http.request", "body": body, "more_body": False}])
    hung_up = asyncio.Event()

    async def receive() -> dict[str, Any]:
        for message in request:
            return message
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            parts.put_nowait(Part(message["status"], b""))
        elif message["type"] == "http.response.body":
            parts.put_nowait(Part(None, message.get("body", b"")))

    task = asyncio.create_task(app(scope(app, path, headers), receive, send))
    task.add_done_callback(lambda _: parts.put_nowait(None))
    try:
        while part := await parts.get():
            yield part
        await task  # an application that failed says so here
    finally:
        hung_up.set()
        await _end(task)


async def _end(task: asyncio.Task[None]) -> None:
    """Let an application that was hung up on come to its end: it stops its own tasks, which cancelling it would not."""
    await asyncio.wait({task}, timeout=HANG_UP_S)
    if not task.done():
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def scope(app: Any, path: str, headers: dict[str, str]) -> dict[str, Any]:
    """Return the scope of a request with a JSON body."""
    named = {"content-type": "application/json", **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in named.items()],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
        "app": app,
        "state": {},
    }


async def outputs(parts: AsyncIterator[Part], *, stream: bool) -> AsyncIterator[Output]:
    """Turn the parts of an OpenAI answer into pieces and one end; a stream that breaks off has no end."""
    status, whole, events = 500, b"", EventStream()
    async for part in parts:
        if part.status is not None:
            status = part.status
        elif stream and status == 200:
            found = events.feed(part.body)
            good = list(itertools.takewhile(lambda event: not _is_error(event), found))
            if good:
                yield Piece(good)
            if len(good) < len(found):
                yield refusal(found[len(good)], 500)
                return
        else:
            whole += part.body
    if status != 200:
        yield refusal(_json_or_none(whole), status)
    elif not stream:
        yield Answer(msgspec.json.decode(whole))
    elif events.done:
        yield Answer(None)


class EventStream:
    """Cuts server-sent events out of bytes; an event may come in several parts, and several in one."""

    def __init__(self) -> None:
        self.done = False
        """Whether the stream's end has come."""
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """Return the JSON objects of the complete events; `[DONE]` is none, and an event's name is in its object."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        texts = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        found = [msgspec.json.decode(text) for text in texts if text and text != b"[DONE]"]
        self.done = self.done or b"[DONE]" in texts or any(map(_is_last, found))
        return found


def _is_last(event: Any) -> bool:
    return isinstance(event, dict) and event.get("type") in LAST_EVENTS


def _is_error(event: Any) -> bool:
    return isinstance(event, dict) and "error" in event


def refusal(answer: Any, status: int) -> Refusal:
    """Return the refusal that vLLM's error object means; an answer that is none becomes a plain server error.

    Args:
        answer: What should hold the error object.
        status: The answer's HTTP status, unless the object names an error status of its own: in a stream it is late.
    """
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return Refusal(status, ErrorBody(message=f"The engine answered {status}.", type="server_error"))
    status = int_or(error.get("code"), status)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    param, code = error.get("param"), error.get("code")
    body = ErrorBody(
        message=str(error.get("message", ""))[:MESSAGE_MAX],
        type=str(error.get("type") or kind),
        param=None if param is None else _field(str(param)),
        code=code if isinstance(code, str) else CODES.get(str(param)),
    )
    return Refusal(status, body)


def _field(param: str) -> str:
    """Return the request's field that vLLM's parameter is in: `stop` for `body.stop.list[str]`."""
    path = param.split(".")
    return path[1] if path[0] == "body" and len(path) > 1 and path[1].isidentifier() else param


def int_or(value: Any, default: int) -> int:
    """Return `value` if it is an HTTP error status, else `default`."""
    return value if isinstance(value, int) and 400 <= value < 600 else default


def _json_or_none(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
