"""What agents and stock clients send: replayed histories, fields of every kind, text meant to break lines."""

import json
from typing import Any

import httpx
import pytest

from autellix.client.stack import Stack

pytestmark = pytest.mark.vllm

MODEL = "tiny"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "Hi"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def called(arguments: str) -> list[dict[str, Any]]:
    """Return an assistant's turn that calls a tool, and the tool's answer."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [USER, *called('{"city": "Rome"}')],
        [USER, *called("{")],
        [USER, *called("")],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        [USER, USER],
        [USER, {"role": "system", "content": "Be kind."}, USER],
        [{"role": "assistant", "content": "Hello."}, USER],
        [{"role": "assistant"}, USER],
        [{"role": "developer", "content": "Be kind."}, {**USER, "name": "x"}],
    ],
)
async def test_histories(http: httpx.AsyncClient, messages: list[Any]) -> None:
    """Conversations as agent frameworks replay them are answered."""
    answer = await http.post(CHAT, json={"model": MODEL, "messages": messages, "max_tokens": 2})

    assert answer.status_code == 200


async def test_parts_are_one_text(http: httpx.AsyncClient) -> None:
    """A turn in several texts is the turn that they make together."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    cut = [
        (await http.post("/tokenize", json={"messages": [{"role": "user", "content": content}]})).json()
        for content in (parts, "a\nb")
    ]

    assert cut[0]["tokens"] == cut[1]["tokens"]


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
        [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
        [{"type": "no-such-type"}],
        [7],
    ],
)
async def test_content_that_is_no_text(http: httpx.AsyncClient, content: list[Any]) -> None:
    """What a model of texts cannot read is a 400, not a failure."""
    answer = await http.post(CHAT, json={"model": MODEL, "messages": [{"role": "user", "content": content}]})

    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False}),
        (CHAT, {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}}),
        (CHAT, {"tools": [TOOL], "tool_choice": "none"}),
        (CHAT, {"tools": [TOOL], "tool_choice": None}),
        (CHAT, {"store": False, "metadata": {"a": "b"}, "service_tier": "auto", "user": "u", "seed": 7}),
        (CHAT, {"response_format": {"type": "text"}, "logit_bias": {}, "stop": [], "modalities": ["text"]}),
        (CHAT, {"n": None, "stop": None, "temperature": None, "stream": None, "stream_options": None}),
        (CHAT, {"priority": None, "min_tokens": None, "use_beam_search": None, "seed": None, "user": None}),
        (CHAT, {"field_of_the_future": {"deep": [1, None]}}),
        (COMPLETIONS, {"n": None, "best_of": None, "echo": None, "min_tokens": None, "stop": None, "suffix": None}),
    ],
)
async def test_fields(http: httpx.AsyncClient, path: str, fields: dict[str, Any]) -> None:
    """No field that stock clients send, null included, breaks a plain call."""
    asked = {"prompt": "Hi"} if path == COMPLETIONS else {"messages": [USER]}
    answer = await http.post(path, json={"model": MODEL, "max_tokens": 30, **asked, **fields})

    assert answer.status_code == 200, answer.text


ODD = 'a"b\n{"event": "forged"}\r\n\x1b[31m\x00'
SECRET = "sesame-7143"


async def test_no_text_breaks_a_line(stack: Stack, http: httpx.AsyncClient) -> None:
    """Whatever a request holds, each line that a service logs of it is one short JSON object, without prompt or key."""
    logs = [child.log for child in stack.children if child.name != "nats-server"]
    before = {log: log.stat().st_size for log in logs}
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": SECRET}], "max_tokens": 2}
    tool = {"type": "function", "function": {"name": ODD + "x" * 1_000_000, "parameters": {}}}
    odd: list[dict[str, Any]] = [
        {"model": ODD},
        {"user": ODD},
        {"session_id": ODD},
        {"tools": [tool]},
        {"messages": [{"role": ODD, "content": SECRET}]},
        {ODD: 1},
    ]
    headers = {"Authorization": f"Bearer {SECRET}"}
    statuses = [(await http.post(CHAT, json={**asked, **each}, headers=headers)).status_code for each in odd]
    quoted = {"model": MODEL, "input": [{"role": "bogus", "content": SECRET}]}  # vLLM says what it does not understand
    statuses.append((await http.post("/v1/responses", json=quoted, headers=headers)).status_code)
    told = [line for log in logs for line in log.read_bytes()[before[log] :].split(b"\n") if line]

    assert statuses == [404, 200, 400, 400, 400, 200, 400]
    assert {type(json.loads(line)) for line in told} == {dict}
    assert max(map(len, told)) < 30_000
    assert SECRET.encode() not in b"".join(told)
