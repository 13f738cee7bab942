"""How the families of APIs word their answers: OpenAI's chat and completions, its responses, and Anthropic's messages.

| | events | end of a stream | error in a stream | error as an HTTP answer |
|---|---|---|---|---|
| chat, completions | `data:` | `data: [DONE]` | `{"error": {...}}` | the same |
| responses | named by their `type` | their last event | `{"type": "error", "code": ...}` | `{"error": {...}}` |
| messages | named by their `type` | their last event | `{"type": "error", "error": {...}}` | the same |
"""

from typing import Any

import msgspec

from autellix.schemas.base import ErrorBody
from autellix.schemas.openai import COUNT_TOKENS, MESSAGES, RESPONSES

_ENCODE = msgspec.json.Encoder().encode

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""Anthropic's types of errors, which its clients go by; other statuses are of the client or of the server."""


class Shape:
    """OpenAI's shape, which others differ from."""

    end = b"data: [DONE]\n\n"
    """What a stream ends with, after its last event."""

    def event(self, data: Any) -> bytes:
        """Return one object of a stream as an event."""
        return b"data: %b\n\n" % _ENCODE(data)

    def failed(self, status: int, error: ErrorBody) -> bytes:
        """Return the event that ends a stream whose call failed."""
        return self.event(self.error(status, error))

    def error(self, status: int, error: ErrorBody) -> Any:  # noqa: ARG002 others need the status
        """Return the object of an HTTP error."""
        return {"error": error}


class Named(Shape):
    """Events have names: the type of their object."""

    end = b""

    def event(self, data: Any) -> bytes:
        """Return one object of a stream as an event."""
        name = data.get("type") if isinstance(data, dict) else None
        return b"event: %b\n%b" % (name.encode(), super().event(data)) if isinstance(name, str) else super().event(data)


class Responses(Named):
    """`/v1/responses`."""

    def failed(self, status: int, error: ErrorBody) -> bytes:  # noqa: ARG002 the object has none
        """Return the event that ends a stream whose call failed."""
        return self.event({"type": "error", "code": error.code, "message": error.message, "param": error.param})


class Messages(Named):
    """`/v1/messages` and what belongs to it."""

    def error(self, status: int, error: ErrorBody) -> Any:
        """Return the object of an HTTP error."""
        kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": error.message}}


OPENAI = Shape()
_ANTHROPIC = Messages()
_SHAPES = {RESPONSES: Responses(), MESSAGES: _ANTHROPIC, COUNT_TOKENS: _ANTHROPIC}


def shape_of(path: str) -> Shape:
    """Return the shape of the answers at a path, which may have a program in front."""
    return next((shape for api, shape in _SHAPES.items() if path.endswith(api)), OPENAI)
