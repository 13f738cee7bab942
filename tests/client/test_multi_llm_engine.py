"""vLLM's Python interface over many engines: what its loops see, on a stack with two simulated ones."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from autellix.client import AsyncMultiLLMEngine, CallFailedError, Program
from autellix.client.multi_llm_engine import RequestOutput
from autellix.client.stack import Stack


class Struct(msgspec.Struct):
    """Parameters as vLLM has them."""

    max_tokens: int = 3
    stop: list[str] = []
    seed: int | None = None
    output_kind: int = 0


@dataclass
class Data:
    """Parameters as a data class."""

    max_tokens: int = 3
    stop: list[str] = field(default_factory=list)


class Plain:
    """Parameters as any object has them."""

    def __init__(self) -> None:
        self.max_tokens = 3


async def last(engine: AsyncMultiLLMEngine, *arguments: Any) -> RequestOutput:
    """Return the last output of a request."""
    outputs = [output async for output in engine.generate(*arguments)]
    return outputs[-1]


@pytest.mark.parametrize("params", [{"max_tokens": 3}, Struct(), Data(), Plain()])
async def test_generate(stack: Stack, params: Any) -> None:
    """Each output has all that has come; the last says that it is the last, and why."""
    async with AsyncMultiLLMEngine(nats_url=stack.nats_url) as engine:
        texts = [output.outputs[0].text async for output in engine.generate("Hi", params, request_id="1")]
        whole = await last(engine, {"prompt_token_ids": [1, 2, 3]}, params, "1")

    assert texts == ["ok ", "ok ok ", "ok ok ok ", "ok ok ok "]
    assert (whole.finished, whole.request_id, whole.prompt, whole.prompt_token_ids) == (True, "1", None, [1, 2, 3])
    assert (len(whole.outputs[0].token_ids), whole.outputs[0].finish_reason) == (3, "length")


async def test_requests_are_calls_of_a_program(stack: Stack) -> None:
    """Requests of several engines' objects may be calls of one program."""
    async with Program("p", nats_url=stack.nats_url) as program, AsyncMultiLLMEngine(program) as engine:
        await asyncio.gather(*(last(engine, "Hi", {"max_tokens": 2}, str(number)) for number in range(3)))
        await program.chat([{"role": "user", "content": "Hi"}], max_tokens=2)

        assert engine.program is program


async def test_abort(stack: Stack) -> None:
    """A request that is aborted ends with what it has, and who made it goes on; to abort another is no error."""
    async with AsyncMultiLLMEngine(nats_url=stack.nats_url) as engine:
        outputs = []
        async for output in engine.generate("Hi", {"max_tokens": 1_000_000}, "long"):
            outputs.append(output)
            await engine.abort(["long", "unknown"])

        assert (outputs[-1].finished, outputs[-1].outputs[0].finish_reason) == (True, "abort")
        assert (await last(engine, "Hi", {"max_tokens": 1}, "long")).finished


async def test_final_only(stack: Stack) -> None:
    """Who wants the last output only gets no other."""
    async with AsyncMultiLLMEngine(nats_url=stack.nats_url) as engine:
        outputs = [output async for output in engine.generate("Hi", {"max_tokens": 3, "output_kind": 2}, "1")]

    assert [output.outputs[0].text for output in outputs] == ["ok ok ok "]


@pytest.mark.parametrize(
    "params", [{"logprobs": 1}, {"prompt_logprobs": 0}, {"output_kind": 1}, {"max_token": 5}, {"bad_words": ["x"]}]
)
async def test_not_offered(stack: Stack, params: Any) -> None:
    """What would be answered otherwise than vLLM does is refused."""
    async with AsyncMultiLLMEngine(nats_url=stack.nats_url) as engine:
        with pytest.raises(ValueError, match="not offered"):
            await last(engine, "Hi", params, "1")


async def test_bad_requests(stack: Stack) -> None:
    """An id that runs, a prompt that is none and a refused request are told apart."""
    async with AsyncMultiLLMEngine(nats_url=stack.nats_url) as engine:
        running = engine.generate("Hi", {"max_tokens": 50}, "1")
        await anext(running)
        with pytest.raises(ValueError, match="runs already"):
            await last(engine, "Hi", {}, "1")
        await running.aclose()
        prompts: list[Any] = ["", [], {"other": 1}]
        for prompt in prompts:
            with pytest.raises(ValueError, match="a prompt is"):
                await last(engine, prompt, {}, "1")
        with pytest.raises(CallFailedError) as refused:
            await last(engine, "Hi", {"temperature": 9}, "1")

    assert refused.value.status == 400
