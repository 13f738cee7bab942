"""The APIs of vLLM's own server that the gateway offers, by the clients that people use, on a real engine."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from autellix.client import Program, instrument
from autellix.client.stack import Stack

pytestmark = pytest.mark.vllm

MODEL = "tiny"
TURNS: list[Any] = [{"role": "user", "content": "Say something."}]
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture
async def oai(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    """Return OpenAI's client; it does not repeat what fails."""
    url = f"http://127.0.0.1:{stack.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield instrument(client)


@pytest.fixture
async def claude(stack: Stack) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """Return Anthropic's client; it does not repeat what fails."""
    url = f"http://127.0.0.1:{stack.port}"
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield instrument(client)


async def charged(http: httpx.AsyncClient, program: Program) -> dict[str, Any]:
    """Return a program's record."""
    return dict((await http.get(f"/v1/programs/{program.id}")).json())


async def test_chat_in_all_its_forms(stack: Stack, oai: openai.AsyncOpenAI) -> None:
    """Several answers, their probabilities, forced structure, forced tools, and usage at the end of a stream."""
    create = oai.chat.completions.create
    asked: dict[str, Any] = {"model": MODEL, "messages": TURNS, "max_tokens": 8}
    cities: Any = {"structured_outputs": {"choice": ["Paris", "Rome"]}}
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
    several = await create(**asked, n=3, logprobs=True, top_logprobs=2)
    shaped = await create(**asked, extra_body=cities)
    called = await create(**{**asked, "max_tokens": 40}, temperature=0, tools=[tool], tool_choice="required")
    pieces = [piece async for piece in await create(**asked, stream=True, stream_options={"include_usage": True})]

    assert len(several.choices) == 3
    assert several.choices[0].logprobs is not None
    assert shaped.choices[0].message.content in ("Paris", "Rome")
    assert [call.function.name for call in called.choices[0].message.tool_calls or []][:1] == ["weather"]
    assert (pieces[-1].choices, pieces[-1].usage is not None) == ([], True)


async def test_responses(stack: Stack, oai: openai.AsyncOpenAI, http: httpx.AsyncClient) -> None:
    """A response, whole and streamed, is a call of its program like any other."""
    async with Program("responses", nats_url=stack.nats_url) as program:
        whole = await oai.responses.create(model=MODEL, input="Say something.", max_output_tokens=8)
        stream = await oai.responses.create(model=MODEL, input="Hi.", max_output_tokens=8, stream=True)
        events = [event.type async for event in stream]
        row = await charged(http, program)

    assert whole.usage is not None
    assert whole.usage.output_tokens == 8
    assert (events[0], events[-1]) == ("response.created", "response.completed")
    assert "response.output_text.delta" in events
    assert (row["calls"], row["output_tokens"], row["service_ms"] > 0) == (2, 16, True)


async def test_messages(stack: Stack, claude: anthropic.AsyncAnthropic, http: httpx.AsyncClient) -> None:
    """A message, whole and streamed, is a call of its program like any other; to count tokens costs nothing."""
    asked: dict[str, Any] = {"model": MODEL, "messages": TURNS}
    async with Program("messages", nats_url=stack.nats_url) as program:
        counted = await claude.messages.count_tokens(**asked)
        whole = await claude.messages.create(**asked, max_tokens=8)
        async with claude.messages.stream(**asked, max_tokens=8) as stream:
            streamed = await stream.get_final_message()
        row = await charged(http, program)

    assert counted.input_tokens == whole.usage.input_tokens > 0
    assert {whole.stop_reason, streamed.stop_reason} == {"max_tokens"}
    assert (whole.usage.output_tokens, streamed.usage.output_tokens) == (8, 8)
    assert (row["calls"], row["output_tokens"], row["service_ms"] > 0) == (3, 16, True)


async def test_tokens(http: httpx.AsyncClient) -> None:
    """A text is cut into tokens and put together again, with and without naming the model."""
    cut = (await http.post("/tokenize", json={"prompt": "hello", "add_special_tokens": False})).json()
    whole = (await http.post("/detokenize", json={"model": MODEL, "tokens": cut["tokens"]})).json()

    assert cut["count"] == len(cut["tokens"]) > 0
    assert whole["prompt"] == "hello"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", {"model": MODEL, "messages": TURNS, "stream_options": {"include_usage": True}}, 400),
        ("/v1/completions", {"model": MODEL, "prompt": "Hi", "stream_options": {"include_usage": True}}, 400),
        ("/v1/responses", {"model": "lost", "input": "Hi"}, 404),
        ("/v1/responses", {"model": MODEL, "input": "Hi", "background": True}, 400),
        ("/v1/responses", {"model": MODEL, "input": "Hi", "previous_response_id": "resp_1"}, 404),
        ("/v1/messages", {"model": "lost", "max_tokens": 4, "messages": TURNS}, 404),
        ("/v1/messages", {"model": MODEL, "messages": TURNS}, 400),
        ("/v1/messages", {"model": MODEL, "max_tokens": 4, "messages": [{"role": "nobody", "content": "Hi"}]}, 400),
        ("/v1/messages/count_tokens", {"model": MODEL, "messages": [{"role": "user"}]}, 400),
        ("/detokenize", {"model": MODEL, "tokens": [-1]}, 400),
    ],
)
async def test_refused(http: httpx.AsyncClient, path: str, body: dict[str, Any], status: int) -> None:
    """What is wrong with a request, ours or the engine's to find, is said in the API's own shape."""
    answer = await http.post(path, json=body)

    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert answer.json().get("type") == ("error" if path.startswith("/v1/messages") else None)
