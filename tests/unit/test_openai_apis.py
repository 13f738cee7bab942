"""What is checked of responses, Anthropic's messages, and the endpoints that only count."""

from typing import Any

import pytest

from autellix.schemas.openai import APIS, InvalidRequestError, check, generates
from autellix.services.session_manager.kinds import kind_of

RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
TURNS = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": TURNS},
    "/v1/completions": {"model": "m", "prompt": "hi"},
    RESPONSES: {"model": "m", "input": "hi"},
    MESSAGES: {"model": "m", "messages": TURNS, "max_tokens": 5},
    COUNT: {"model": "m", "messages": TURNS},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1, 2]},
}


def test_every_api_is_tried() -> None:
    """The least that an API asks for is known here for each."""
    assert BODIES.keys() == APIS.keys()


@pytest.mark.parametrize("api", BODIES)
def test_least_request(api: str) -> None:
    """The least request of each API passes."""
    assert check(api, BODIES[api])[0].model == BODIES[api].get("model")


def test_what_computes() -> None:
    """Four APIs make an engine compute; counting and cutting into tokens does not."""
    assert [api for api in APIS if generates(api)] == list(BODIES)[:4]


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}),
        (RESPONSES, {"tools": [{"type": "function", "name": "f", "parameters": {}}], "reasoning": {"effort": "low"}}),
        (RESPONSES, {"background": False, "store": True, "previous_response_id": "resp_1"}),
        (MESSAGES, {"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]}),
        (MESSAGES, {"messages": [*TURNS, {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}]}),
        (MESSAGES, {"stop_sequences": ["\n\nHuman:"], "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"}}),
        ("/tokenize", {"prompt": None, "messages": TURNS, "model": "m"}),
    ],
)
def test_fields_of_stock_clients(api: str, fields: dict[str, Any]) -> None:
    """What clients send beside the least is the engine's to judge."""
    check(api, {**BODIES[api], **fields})


@pytest.mark.parametrize(
    ("api", "field", "value"),
    [
        (RESPONSES, "input", ""),
        (RESPONSES, "input", []),
        (RESPONSES, "input", 7),
        (RESPONSES, "max_output_tokens", 0),
        (RESPONSES, "background", True),
        (RESPONSES, "top_logprobs", 21),
        (RESPONSES, "model", None),
        (MESSAGES, "max_tokens", 0),
        (MESSAGES, "max_tokens", None),
        (MESSAGES, "messages", []),
        (MESSAGES, "messages", ["hi"]),
        (MESSAGES, "system", 7),
        (MESSAGES, "stop_sequences", [""]),
        (MESSAGES, "stop_sequences", ["a"] * 17),
        (MESSAGES, "temperature", 3),
        (COUNT, "messages", []),
        (COUNT, "stream", True),
        ("/tokenize", "stream", True),
        ("/detokenize", "tokens", [-1]),
        ("/detokenize", "tokens", "1"),
    ],
)
def test_refused(api: str, field: str, value: object) -> None:
    """A value out of bounds, or of another type, is a 400 that names its field."""
    with pytest.raises(InvalidRequestError) as refused:
        check(api, {**BODIES[api], field: value})

    assert (refused.value.status, refused.value.body.param) == (400, field)


@pytest.mark.parametrize("api", [RESPONSES, MESSAGES])
def test_kinds(api: str) -> None:
    """Agents are told apart by their system prompts in these APIs, too."""
    field = {RESPONSES: "instructions", MESSAGES: "system"}[api]
    first, again, other, none = (
        kind_of(check(api, {**BODIES[api], **fields})[0])
        for fields in ({field: "Be brief."}, {field: "Be brief."}, {field: "Be kind."}, {})
    )

    assert first == again
    assert len({first, other, none}) == 3
    assert none == ""
