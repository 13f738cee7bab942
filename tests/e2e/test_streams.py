"""Streams on a real engine: their text is the plain answer's, to the letter, and they end as they should."""

import json
from typing import Any

import anthropic
import httpx
import openai
import pytest

from autellix.client import Program
from autellix.client.stack import Stack

pytestmark = pytest.mark.vllm

MODEL = "tiny"
ASK: list[Any] = [{"role": "user", "content": "Say something."}]
LETTERS = "na\u00efve \u9f9c \U0001fae0 \U0001f468\u200d\U0001f469\u200d\U0001f467"
"""The model's vocabulary has bytes: each of these takes two to four tokens, the last one eighteen."""
COUNT = "one two three four"


async def both(stack: Stack, **fields: Any) -> tuple[str, str]:
    """Return the text of one answer, whole and streamed."""
    async with Program("twice", nats_url=stack.nats_url) as program:
        whole = await program.chat(ASK, temperature=0, **fields)
        pieces = [piece async for piece in program.stream(ASK, temperature=0, **fields)]
    return whole.text, "".join(pieces)


@pytest.mark.parametrize("tokens", [64, *range(4, 13), 20])
async def test_characters_of_several_tokens(stack: Stack, tokens: int) -> None:
    """A character that takes several tokens comes whole or, where the answer is cut, not at all, in both ways."""
    whole, streamed = await both(stack, max_tokens=tokens, structured_outputs={"choice": [LETTERS]})

    assert whole == streamed
    assert LETTERS.startswith(whole)
    assert "\ufffd" not in whole
    assert tokens < 64 or whole == LETTERS


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("two three", "one "),
        (["four", "o three"], "one tw"),
        (["e t"], "on"),
        ([COUNT], ""),
        (["never", "two four"], COUNT),
        ([], COUNT),
        (None, COUNT),
    ],
)
async def test_stop(stack: Stack, stop: Any, text: str) -> None:
    """A stop never shows, and nothing before it is lost; one that never comes changes nothing."""
    whole, streamed = await both(stack, max_tokens=40, structured_outputs={"choice": [COUNT]}, stop=stop)

    assert (whole, streamed) == (text, text)


async def test_other_apis(stack: Stack) -> None:
    """Responses and messages say the same streamed and whole."""
    asked: dict[str, Any] = {"model": MODEL, "extra_body": {"temperature": 0}}
    async with (
        openai.AsyncOpenAI(base_url=f"{stack.http_url}/v1", api_key="none", max_retries=0) as oai,
        anthropic.AsyncAnthropic(base_url=stack.http_url, api_key="none", max_retries=0) as claude,
    ):
        response = await oai.responses.create(**asked, input="Hi.", max_output_tokens=40)
        events: Any = await oai.responses.create(**asked, input="Hi.", max_output_tokens=40, stream=True)
        told = [event.delta async for event in events if event.type == "response.output_text.delta"]
        message = await claude.messages.create(**asked, messages=ASK, max_tokens=40)
        async with claude.messages.stream(**asked, messages=ASK, max_tokens=40) as stream:
            said = [text async for text in stream.text_stream]

    assert "".join(told) == response.output_text
    assert "".join(said) == "".join(block.text for block in message.content if block.type == "text")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
async def test_usage(http: httpx.AsyncClient, path: str, options: dict[str, bool] | None) -> None:
    """Usage comes for who asks, of all answers together, in one last chunk without choices; every answer ends once."""
    asked = {"messages": ASK} if path.endswith("chat/completions") else {"prompt": "Hi"}
    body = {"model": MODEL, **asked, "max_tokens": 5, "ignore_eos": True, "temperature": 1, "n": 2, "stream": True}
    answer = await http.post(path, json={**body, **({"stream_options": options} if options else {})})
    *data, end = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    chunks = [json.loads(each) for each in data]
    last = 1 if options == {"include_usage": True} else 0
    usages = chunks[len(chunks) - last :]
    ended = [choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]

    assert end == "[DONE]"
    assert sorted(ended) == [0, 1]
    assert [chunk for chunk in chunks if chunk.get("usage")] == usages
    assert [(chunk["choices"], chunk["usage"]["completion_tokens"]) for chunk in usages] == [([], 10)] * last
