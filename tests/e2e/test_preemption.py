"""The promise of program-level scheduling, on a real vLLM engine through the whole pipeline."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from autellix.client import Program
from autellix.client.answer import Answer
from autellix.client.stack import Stack

pytestmark = pytest.mark.vllm

LONG: dict[str, Any] = {"max_tokens": 500, "ignore_eos": True, "temperature": 0}
SHORT: dict[str, Any] = {"max_tokens": 5, "ignore_eos": True, "temperature": 0}


def asks(text: str) -> list[dict[str, str]]:
    """Return a conversation of one turn."""
    return [{"role": "user", "content": text}]


class Streamed:
    """A long call under way."""

    def __init__(self) -> None:
        self.pieces = 0
        """Of its answer, so far; about one a token."""
        self.first = asyncio.Event()

    async def run(self, program: Program, text: str) -> Answer:
        """Follow the call to its end."""
        stream = program.stream(asks(text), **LONG)
        async for _ in stream:
            self.pieces += 1
            self.first.set()
        return stream.answer


async def test_short_call_of_a_new_program_overtakes_two_long_programs(stack: Stack) -> None:
    """With both slots held by long programs, a new program's short call overtakes them; outputs stay the same."""
    async with (
        Program("long-a", nats_url=stack.nats_url) as a,
        Program("long-b", nats_url=stack.nats_url) as b,
        Program("new", nats_url=stack.nats_url) as new,
    ):
        alone = [await a.chat(asks("Tell me a"), **LONG), await b.chat(asks("Tell me b"), **LONG)]
        long = [Streamed(), Streamed()]
        async with asyncio.TaskGroup() as calls:
            running = [
                calls.create_task(each.run(*what))
                for each, what in zip(long, [(a, "Tell me a"), (b, "Tell me b")], strict=True)
            ]
            await asyncio.gather(*(each.first.wait() for each in long))
            await new.chat(asks("Quick"), **SHORT)
            pieces = [each.pieces for each in long]
        answer_a, answer_b = (task.result() for task in running)

    assert [answer.text for answer in alone] == [answer_a.text, answer_b.text]
    assert answer_a.call.preemptions + answer_b.call.preemptions >= 1
    assert max(pieces) < 0.5 * min(each.pieces for each in long)


async def test_displacing_does_not_go_back_and_forth(stack: Stack) -> None:
    """Six equal programs on two slots all end whole, and none is displaced more than twice for each queue it was in."""
    async with AsyncExitStack() as life:
        programs = [
            await life.enter_async_context(Program(f"p{number}", nats_url=stack.nats_url)) for number in range(6)
        ]
        answers = await asyncio.gather(
            *(program.chat(asks("Hi"), max_tokens=60, ignore_eos=True) for program in programs)
        )

    assert [answer.call.output_tokens for answer in answers] == [60] * 6
    assert [answer.call for answer in answers if answer.call.preemptions > 2 * len(answer.call.queues)] == []
