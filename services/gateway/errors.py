"""Errors that are not a call's own, in the OpenAI shape: refused requests, unknown paths, wrong methods, our faults."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from autellix.schemas.base import ErrorBody
from autellix.schemas.openai import InvalidRequestError
from autellix.services.gateway import answers
from autellix.services.gateway.shapes import shape_of
from autellix.services.publishing import error_facts

log = structlog.get_logger()

ERRORS: Final = (InvalidRequestError, HTTPException, ClientDisconnect, Exception)
"""What `on_error` answers; starlette raises the last kind on, into the log."""

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def request_id(request: Request) -> str | None:
    """Return the client's own id of its request, if it can be echoed."""
    text = request.headers.get("x-request-id", "")
    return text if _REQUEST_ID.fullmatch(text) else None


async def on_error(request: Request, error: Exception) -> Response:
    """Answer a request that raised `error`."""
    known = request_id(request)
    headers = {"X-Request-Id": known} if known else {}
    match error:
        case InvalidRequestError():
            return _refuse(request, error.status, error.body, headers)
        case HTTPException():
            return _refuse(request, error.status_code, _refused(request, error), {**headers, **(error.headers or {})})
        case ClientDisconnect():  # it left while it sent its body, and hears nothing any more
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        case _:
            body = ErrorBody(message="Internal error.", type="server_error", code="internal_error")
            return answers.error(HTTPStatus.INTERNAL_SERVER_ERROR, body, headers, shape_of(request.url.path))


def _refuse(request: Request, status: int, body: ErrorBody, headers: Mapping[str, str]) -> Response:
    """Return the answer to a request that is refused, and log it."""
    log.warning("refused", method=request.method, path=request.url.path, status=status, **error_facts(body))
    return answers.error(status, body, headers, shape_of(request.url.path))


def _refused(request: Request, error: HTTPException) -> ErrorBody:
    """Return the body for what the router refuses."""
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    message = f"{error.detail}: {request.method} {request.url.path[:200]}"
    return ErrorBody(message=message, type="invalid_request_error", code=code)
