"""Faults that servers of this kind are known for, provoked by requests: odd values and odd shapes, on a real engine."""

import asyncio
import json
import re
from typing import Any

import httpx
import psutil
import pytest

from autellix.client import Program
from autellix.client.stack import Stack

pytestmark = pytest.mark.vllm

MODEL = "tiny"
CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
TURNS: list[Any] = [{"role": "user", "content": "Say something."}]
LIMIT = 2048
"""The engine's context."""
BEYOND = 10_000_000
"""An id that no vocabulary has."""
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def engine_of(stack: Stack) -> set[int]:
    """Return the processes of the engine."""
    worker = psutil.Process(next(child.pid for child in stack.children if child.name == "engine-0"))
    return {worker.pid, *(child.pid for child in worker.children(recursive=True))}


@WAYS
@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"messages": TURNS, "logit_bias": {str(BEYOND): 5}}, "logit_bias"),
        (CHAT, {"messages": TURNS, "stop_token_ids": [BEYOND], "min_tokens": 1}, "stop_token_ids"),
        (CHAT, {"messages": TURNS, "allowed_token_ids": [BEYOND]}, "allowed_token_ids"),
        (CHAT, {"messages": TURNS, "top_k": 2**31}, "top_k"),
        (COMPLETIONS, {"prompt": [BEYOND]}, None),
        (RESPONSES, {"input": "Hi", "logit_bias": {str(BEYOND): 5}}, "logit_bias"),
    ],
)
async def test_ids_beyond_the_vocabulary(
    stack: Stack, http: httpx.AsyncClient, path: str, fields: dict[str, Any], param: str | None, *, stream: bool
) -> None:
    """An id that the vocabulary lacks is a 400 that names its field; a call beside it, and the engine, go on."""
    processes = engine_of(stack)
    async with Program("beside", nats_url=stack.nats_url) as beside:
        other = asyncio.create_task(beside.chat(TURNS, max_tokens=40, ignore_eos=True))
        answer = await http.post(path, json={"model": MODEL, **fields, "stream": stream})
        unharmed = await other

    assert answer.status_code == 400
    assert param in (None, answer.json()["error"]["param"])
    assert unharmed.call.output_tokens == 40
    assert engine_of(stack) == processes


@pytest.mark.parametrize("top_k", [9_999_999, 2**31 - 1])
async def test_more_candidates_than_the_vocabulary_has(http: httpx.AsyncClient, top_k: int) -> None:
    """They are all of it."""
    body = {"model": MODEL, "messages": TURNS, "max_tokens": 4, "ignore_eos": True, "top_k": top_k}
    answer = await http.post(CHAT, json=body)

    assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 4)


@WAYS
async def test_prompt_that_is_cut_to_nothing(http: httpx.AsyncClient, *, stream: bool) -> None:
    """A prompt that is empty once the client's own wish has cut it is refused."""
    body = {"model": MODEL, "prompt": "Hi", "truncate_prompt_tokens": 0, "stream": stream}

    assert (await http.post(COMPLETIONS, json=body)).status_code == 400


@WAYS
@pytest.mark.parametrize("fields", [{}, {"max_tokens": 5}])
@pytest.mark.parametrize("tokens", [LIMIT, LIMIT + 1, 3000])
async def test_full_context(http: httpx.AsyncClient, tokens: int, fields: dict[str, Any], *, stream: bool) -> None:
    """A prompt that leaves no room for an answer is refused with the true limit, whatever was asked for."""
    answer = await http.post(COMPLETIONS, json={"model": MODEL, "prompt": [20] * tokens, "stream": stream, **fields})
    error = answer.json()["error"]

    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert str(LIMIT) in error["message"]
    assert "got 0" not in error["message"]


async def test_answers_take_what_the_context_leaves(http: httpx.AsyncClient) -> None:
    """More tokens than the context leaves are as many as it leaves; more than it has are refused."""
    body = {"model": MODEL, "prompt": [20] * (LIMIT - 18), "ignore_eos": True}
    cut = (await http.post(COMPLETIONS, json={**body, "max_tokens": 100})).json()
    beyond = await http.post(COMPLETIONS, json={**body, "max_tokens": LIMIT + 1})

    assert (cut["usage"]["completion_tokens"], cut["choices"][0]["finish_reason"]) == (18, "length")
    assert (beyond.status_code, beyond.json()["error"]["param"]) == (400, "max_tokens")


def shaped(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a request whose answer has to keep a schema."""
    asked, named = {"type": "json_schema", "schema": schema}, {"name": "x", "schema": schema}
    forms: dict[str, dict[str, Any]] = {
        CHAT: {"messages": TURNS, "response_format": {"type": "json_schema", "json_schema": named}},
        RESPONSES: {"input": "Hi", "text": {"format": {**asked, "name": "x"}}},
        MESSAGES: {"messages": TURNS, "max_tokens": 8, "output_config": {"format": asked}},
    }
    return forms[path]


@WAYS
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize(
    "schema",
    [{"type": "integer", "multipleOf": 7}, {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}],
    ids=["multiple", "unique"],
)
async def test_schema_that_grammars_lack(
    http: httpx.AsyncClient, path: str, schema: dict[str, Any], *, stream: bool
) -> None:
    """A schema with a keyword that the engine cannot hold is refused, never passed over."""
    answer = await http.post(path, json={"model": MODEL, **shaped(path, schema), "stream": stream})

    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("regex", ["(a|)b", "(?<=a)b", "(["])
async def test_regex_holds_or_is_refused(http: httpx.AsyncClient, regex: str) -> None:
    """Beside the engine's other grammars a regular expression holds, or is a 400."""
    good = {"model": MODEL, "messages": TURNS, "max_tokens": 8, "structured_outputs": {"choice": ["red", "green"]}}
    before = await http.post(CHAT, json=good)
    answer = await http.post(CHAT, json={**good, "structured_outputs": {"regex": regex}})
    after = await http.post(CHAT, json=good)

    assert (before.status_code, after.status_code) == (200, 200)
    assert answer.status_code == 400 or re.fullmatch(regex, answer.json()["choices"][0]["message"]["content"])


def strictly(text: str) -> Any:
    """Return what JSON says; NaN and infinity are none."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


IMPROBABLE: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": "Hi", "logprobs": 5, "top_k": 1, "temperature": 0.01, "echo": True}),
    (CHAT, {"messages": TURNS, "logprobs": True, "top_logprobs": 5, "structured_outputs": {"choice": ["Paris"]}}),
]
"""With one possible answer the logarithm of all others is minus infinity."""


@WAYS
@pytest.mark.parametrize(("path", "fields"), IMPROBABLE)
async def test_what_is_impossible_is_json(
    http: httpx.AsyncClient, path: str, fields: dict[str, Any], *, stream: bool
) -> None:
    """Probabilities are numbers that JSON has, whole and streamed."""
    answer = await http.post(path, json={"model": MODEL, "max_tokens": 6, **fields, "stream": stream})
    lines = answer.text.split("\n") if stream else [f"data: {answer.text}"]
    said = [strictly(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"]

    assert answer.status_code == 200
    assert [each for each in said if "error" in each] == []
    assert any(choice.get("logprobs") for each in said for choice in each["choices"])


async def test_what_is_impossible_on_the_bus(stack: Stack) -> None:
    """MessagePack could carry an infinity; it carries none either."""
    _, fields = IMPROBABLE[1]
    async with Program("sure", nats_url=stack.nats_url) as program:
        answer = await program.chat(**fields, max_tokens=6)

    assert json.dumps(answer.response["choices"][0]["logprobs"], allow_nan=False).count("-9999.0") > 0
