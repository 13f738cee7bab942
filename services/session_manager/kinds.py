"""Tells kinds of agents apart where the client does not: agents of one kind have one model and one system prompt."""

import hashlib
from typing import Any

import msgspec

from autellix.schemas.openai import ApiRequest, ChatRequest, MessagesRequest, ResponsesRequest

SYSTEM_ROLES = ("system", "developer")
BYTES = 8


def kind_of(request: ApiRequest) -> str:
    """Return a name for the model and the first system prompt of a request; empty, if it has no such prompt."""
    prompt = _system_prompt(request)
    if not prompt:
        return ""
    return hashlib.blake2b(msgspec.json.encode([request.model, prompt]), digest_size=BYTES).hexdigest()


def _system_prompt(request: ApiRequest) -> str | list[Any] | None:
    match request:
        case ChatRequest():
            return next((turn.content for turn in request.messages if turn.role in SYSTEM_ROLES), None)
        case MessagesRequest():
            return request.system
        case ResponsesRequest():
            return request.instructions
        case _:
            return None
