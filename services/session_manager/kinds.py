"""Tells kinds of agents apart where the client does not: agents of one kind have one model and one system prompt."""

import hashlib

import msgspec

from autellix.schemas.openai import ChatRequest, Sampling

SYSTEM_ROLES = ("system", "developer")
BYTES = 8


def kind_of(request: Sampling) -> str:
    """Return a name for the model and the first system prompt of a request; empty, if it has no such prompt."""
    turns = request.messages if isinstance(request, ChatRequest) else []
    prompt = next((turn.content for turn in turns if turn.role in SYSTEM_ROLES), None)
    if not prompt:
        return ""
    return hashlib.blake2b(msgspec.json.encode([request.model, prompt]), digest_size=BYTES).hexdigest()
