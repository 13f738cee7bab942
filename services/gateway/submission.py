"""An HTTP request becomes a call: its body is read within bounds, its program is found, its fields are left alone.

Which program a call belongs to, first hit wins: the header `X-Autellix-Program-Id` (a program that was started), the
header `X-Session-ID`, the body's `session_id` (a name of the client's own). None, or blank: a program of its own.
What kind of agent it is, so that the policy can learn from those before it, `X-Autellix-Agent` says.
How long the client would wait, in milliseconds, `X-Autellix-Deadline-Ms` says: full engines then refuse at once.
What is inside the body is the session manager's to judge.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request

from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import encode
from autellix.schemas.ids import ProgramId, ThreadId
from autellix.schemas.messages import SubmitCall
from autellix.schemas.openai import InvalidRequestError, invalid

PROGRAM_HEADER: Final = "x-autellix-program-id"
THREAD_HEADER: Final = "x-autellix-thread-id"
SESSION_HEADER: Final = "x-session-id"
AGENT_HEADER: Final = "x-autellix-agent"
DEADLINE_HEADER: Final = "x-autellix-deadline-ms"

ID_BYTES_MAX: Final = 256
READ_S: Final = 30.0
"""How long a client may take to send its body."""

_BODY = msgspec.json.Decoder(dict[str, Any])
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Submission(NamedTuple):
    """A call as it will be published."""

    payload: bytes
    """An encoded `SubmitCall`."""
    stream: bool
    """Whether the client wants the answer as an event stream."""


async def read(request: Request, api: str, *, bytes_max: int) -> Submission:
    """Return the call that a request asks for.

    Raises:
        InvalidRequestError: 400 for a body that is no JSON object or an unusable id, 408 for a body that does not
            come, 413 for one above `bytes_max`.
    """
    body = await _read_body(request, bytes_max)
    return submission(request.headers, body, api)


async def _read_body(request: Request, bytes_max: int) -> bytes:
    """Read the body; the rest of one that is too large is read but not kept, so that the client sees the answer."""
    kept, size = bytearray(), 0
    try:
        async with asyncio.timeout(READ_S):
            async for part in request.stream():
                size += len(part)
                if size <= bytes_max:
                    kept += part
    except TimeoutError:
        error = ErrorBody(message=f"The body did not arrive within {READ_S:g} s.", type="invalid_request_error")
        raise InvalidRequestError(408, error) from None
    if size > bytes_max:
        raise invalid(f"The body has {size} bytes; the limit is {bytes_max}.", code="body_too_large", status=413)
    return bytes(kept)


def submission(headers: Mapping[str, str], body: bytes, api: str) -> Submission:
    """Return the call made of a request's headers (names in lower case) and body.

    Raises:
        InvalidRequestError: 400 for a body that is no JSON object, an unusable id, or a deadline that is no number.
    """
    fields = _fields(headers, body)
    program_id, thread_id = (_header_id(headers, name) for name in (PROGRAM_HEADER, THREAD_HEADER))
    session = _header_id(headers, SESSION_HEADER) or _id(fields.get("session_id"), "session_id")
    call = SubmitCall(
        body=fields,
        api=api,
        program_id=ProgramId(program_id) if program_id else None,
        thread_id=ThreadId(thread_id) if thread_id else None,
        session=session,
        agent=_header_id(headers, AGENT_HEADER) or "",
        deadline_ms=_deadline_ms(headers),
    )
    try:
        return Submission(encode(call), fields.get("stream") is True)
    except ValueError as error:
        raise invalid(f"The body cannot be carried: {error}.") from error


def _fields(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    coding = headers.get("content-encoding", "identity")
    if coding.lower() not in ("", "identity"):
        raise invalid(f"Content-Encoding {coding[:80]!r} is not supported.", code="unsupported_encoding")
    try:
        return _BODY.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise invalid(f"The body is not a JSON object in UTF-8: {error}", code="invalid_json") from error


def _deadline_ms(headers: Mapping[str, str]) -> float | None:
    text = headers.get(DEADLINE_HEADER, "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise invalid(f"{DEADLINE_HEADER} must be a number.", param=DEADLINE_HEADER) from None


def _header_id(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    try:
        return _id(value and value.encode("latin-1").decode(), name)
    except UnicodeDecodeError:
        raise invalid(f"{name} is not UTF-8.", param=name) from None


def _id(value: object, name: str) -> str | None:
    """Return a client's id, None for a blank one; it is bounded and printable since it meets logs and tables."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string.", param=name)
    if len(value.encode()) > ID_BYTES_MAX:
        raise invalid(f"{name} is longer than {ID_BYTES_MAX} bytes.", param=name)
    if _CONTROL.search(value):
        raise invalid(f"{name} holds control characters.", param=name)
    return value.strip() or None
