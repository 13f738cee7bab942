"""An HTTP request becomes a call: its body is read within bounds, its program is found, its fields are left alone.

Which program a call belongs to `identity.py` says; which calls' answers it needed, the header `X-Autellix-Parent-Ids`.
What kind of agent it is, so that the policy can learn from those before it, `X-Autellix-Agent` says. How long the
client would wait, in milliseconds, `X-Autellix-Deadline-Ms` says: full engines then refuse at once.
`Idempotency-Key` makes it durable: it is executed to one result, which the same request with the same key gets again.
What is inside the body is the session manager's to judge.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request

from autellix.schemas import tenants
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import encode
from autellix.schemas.messages import SubmitCall
from autellix.schemas.openai import InvalidRequestError, invalid
from autellix.schemas.trace_context import context_of
from autellix.services.gateway.door import tenant_of
from autellix.services.gateway.identity import Identities, header_id, parents_of

AGENT_HEADER: Final = "x-autellix-agent"
DEADLINE_HEADER: Final = "x-autellix-deadline-ms"
KEY_HEADER: Final = "idempotency-key"

READ_S: Final = 30.0
"""How long a client may take to send its body."""

MODEL_SHOWN: Final = 256
"""Characters of a model's name that observers are told before anybody has checked it."""

_BODY = msgspec.json.Decoder(dict[str, Any])


class Submission(NamedTuple):
    """A call as it will be published."""

    payload: bytes
    """An encoded `SubmitCall`."""
    stream: bool
    """Whether the client wants the answer as an event stream."""
    model: str = ""
    """What the client asks for, if that is a text."""
    final: bool = False
    """Whether it is its program's last call."""
    trace: str = ""
    """The client's own span, as a W3C `traceparent`."""
    tenant: str = tenants.NOBODY
    """Whose it is."""


async def read(request: Request, api: str, identities: Identities, *, bytes_max: int) -> Submission:
    """Return the call that a request asks for.

    Raises:
        InvalidRequestError: 400 for a body that is no JSON object or an unusable id, 408 for a body that does not
            come, 413 for one above `bytes_max`.
    """
    body = await read_body(request, bytes_max)
    within = request.path_params.get("program")
    return submission(request.headers, body, api, identities, within=within, tenant=tenant_of(request))


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Return the body; the rest of one that is too large is read but not kept, so that the client sees the answer.

    Raises:
        InvalidRequestError: 408 for a body that does not come, 413 for one above `bytes_max`.
    """
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


def submission(
    headers: Mapping[str, str],
    body: bytes,
    api: str,
    identities: Identities,
    *,
    within: str | None = None,
    tenant: str = tenants.NOBODY,
) -> Submission:
    """Return the call made of a request's headers (names in lower case) and body, within the program its URL names.

    Raises:
        InvalidRequestError: 400 for a body that is no JSON object, an unusable id, or a deadline that is no number.
    """
    fields = _fields(headers, body)
    identity = identities.of(headers, fields, within=within, tenant=tenant)
    _take_out_context(fields)
    key = durable_id(headers)
    call = SubmitCall(
        body=fields,
        api=api,
        program_id=identity.program_id,
        session=identity.session,
        source=identity.source,
        thread_id=identity.thread_id,
        parents=parents_of(headers),
        agent=header_id(headers, AGENT_HEADER) or "",
        deadline_ms=_deadline_ms(headers),
        durable=key is not None,
        id=key,
    )
    try:
        payload = encode(call)
    except ValueError as error:
        raise invalid(f"The body cannot be carried: {error}.") from error
    model = fields.get("model")
    return Submission(
        payload,
        stream=fields.get("stream") is True,
        model=model[:MODEL_SHOWN] if isinstance(model, str) else "",
        final=identity.final,
        trace=context_of(headers),
        tenant=tenant,
    )


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


def durable_id(headers: Mapping[str, str]) -> str | None:
    """Return the id of a durable call, None for another; quotes around it are the header's, by its standard.

    Raises:
        InvalidRequestError: 400 for one that is unusable.
    """
    key = header_id(headers, KEY_HEADER)
    if key and len(key) > 2 and key[0] == key[-1] == '"':
        return key[1:-1]
    return key


def _take_out_context(fields: dict[str, Any]) -> None:
    """Take out what tells routers whose call it is, and is no argument that an engine knows."""
    if isinstance(arguments := fields.get("vllm_xargs"), dict):
        arguments.pop("agentic_context", None)
