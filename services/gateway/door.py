"""Who may ask over HTTP, and for which tenant: by an API key, as clients of OpenAI, Anthropic and browsers send one.

| client | sends its key as |
|---|---|
| OpenAI's and most | `Authorization: Bearer KEY` |
| Anthropic's | `x-api-key: KEY` |
| a browser, for the page | the password of `Authorization: Basic`, with any name |

Without a file of keys everybody may, and there are no tenants.
"""

import base64
import binascii
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import structlog
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from autellix.schemas import tenants
from autellix.schemas.base import ErrorBody
from autellix.services.api_keys import ApiKeys
from autellix.services.gateway import answers
from autellix.services.gateway.shapes import shape_of

log = structlog.get_logger()

OPEN: Final = frozenset({"/health", "/healthz", "/ready", "/readyz", "/version"})
"""What anybody may ask: it says nothing of anybody."""
OPERATORS: Final = frozenset({"/metrics"})
"""What only who runs it all may ask: it is of all tenants."""
PAGES: Final = frozenset({"/", "/page.css", "/page.js", "/page/stream"})
"""What browsers ask, which know one way to send a key."""

_TENANT: Final = "autellix.tenant"


class Door:
    """The application behind its door: an ASGI application."""

    def __init__(self, app: ASGIApp, keys: ApiKeys | None) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer 401, or 403."""
        tenant = tenants.NOBODY
        path = scope.get("path", "")
        if scope["type"] == "http" and not path.isprintable():  # a route may end before a line's end, and so be another
            await _refuse(scope, receive, send, HTTPStatus.NOT_FOUND, _NO_PATH)
            return
        if scope["type"] == "http" and self._keys and path not in OPEN:
            key = presented(scope["headers"], by_browser=scope["method"] in ("GET", "HEAD"))
            found = None if key is None else self._keys.tenant_of(key)
            if found is None:
                await _refuse(scope, receive, send, HTTPStatus.UNAUTHORIZED, _unknown(key))
                return
            if found != tenants.NOBODY and path in OPERATORS:
                await _refuse(scope, receive, send, HTTPStatus.FORBIDDEN, _NOT_YOURS)
                return
            tenant = found
        await self._app({**scope, _TENANT: tenant}, receive, send)


def tenant_of(request: HTTPConnection) -> str:
    """Return for whom a request was let in."""
    return str(request.scope.get(_TENANT, tenants.NOBODY))


def presented(headers: Iterable[tuple[bytes, bytes]], *, by_browser: bool) -> bytes | None:
    """Return the key that a request presents, None for none.

    Args:
        headers: Those of the request.
        by_browser: Whether the key may come as a browser sends it, by itself, whatever site makes it ask: it may look
            at something so, and change nothing.
    """
    found = {name.lower(): value for name, value in headers}
    scheme, _, rest = found.get(b"authorization", b"").strip().partition(b" ")
    match scheme.lower():
        case b"bearer":
            return rest.strip()
        case b"basic" if by_browser:
            try:
                return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
            except binascii.Error:
                return b""
        case _:
            return found.get(b"x-api-key")


_NO_PATH: Final = ErrorBody(message="There is no such path.", type="invalid_request_error", code="not_found")
_NOT_YOURS: Final = ErrorBody(
    message="Only an operator's key opens this.", type="invalid_request_error", code="operators_only"
)


def _unknown(key: bytes | None) -> ErrorBody:
    text = "No API key was sent." if key is None else "The API key is not known."
    return ErrorBody(message=text, type="invalid_request_error", code="invalid_api_key")


async def _refuse(scope: Scope, receive: Receive, send: Send, status: HTTPStatus, body: ErrorBody) -> None:
    path = scope["path"]
    log.warning("refused", method=scope["method"], path=path, status=int(status), code=body.code)
    asks = 'Basic realm="Autellix", charset="UTF-8"' if path in PAGES else "Bearer"
    headers = {"WWW-Authenticate": asks} if status == HTTPStatus.UNAUTHORIZED else {}
    await answers.error(status, body, headers, shape_of(path))(scope, receive, send)
