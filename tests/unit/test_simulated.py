"""The engine without a model: as many words as asked for, in the shape of the API, and counted like a real one's."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from autellix.engine.executor import Answer, EngineCall, EngineInfo, Output, Piece
from autellix.engine.simulated import WORD_ID, SimulatedExecutor
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@pytest.fixture
def engine() -> SimulatedExecutor:
    """Return an engine that answers at once, with at most 1000 words."""
    return SimulatedExecutor(EngineInfo(("m",), "atlas", 4, 0, 1000))


def call(api: str = CHAT, **fields: Any) -> EngineCall:
    """Return a call with these fields in its body."""
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if api == CHAT else {"prompt": "hi"}
    body = {"model": "m", **prompt, **fields}
    return EngineCall(
        CallId("c1"),
        ProgramId("p"),
        ThreadId("main"),
        api,
        msgspec.json.encode(body),
        bool(body.get("stream")),
        ProgramFacts(),
    )


async def outputs(run: AsyncGenerator[Output, None]) -> list[Output]:
    """Return everything that a call brings."""
    return [output async for output in run]


@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
async def test_streamed_and_whole_are_the_same(engine: SimulatedExecutor, api: str) -> None:
    """The texts of a stream's chunks joined are the whole answer, and only the last one says why it ended."""
    (whole,) = await outputs(engine.run(call(api, max_tokens=5)))
    *pieces, end = await outputs(engine.run(call(api, max_tokens=5, stream=True)))
    assert isinstance(whole, Answer)
    choice = whole.response["choices"][0]
    chunks = [piece.data[0]["choices"][0] for piece in pieces if isinstance(piece, Piece)]
    texts = [chunk["delta"]["content"] if api == CHAT else chunk["text"] for chunk in chunks]

    assert "".join(texts) == (choice["message"]["content"] if api == CHAT else choice["text"]) == "ok " * 5
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * 4 + ["length"]
    assert whole.response["usage"]["completion_tokens"] == 5
    assert end == Answer(None)


async def test_ids_in_and_out(engine: SimulatedExecutor) -> None:
    """A prompt of ids has as many tokens, and an answer has its ids where they are asked for."""
    fields = {"prompt": [5, 6, 7], "return_token_ids": True, "max_tokens": 2}
    (whole,) = await outputs(engine.run(call(COMPLETIONS, **fields)))
    *pieces, _ = await outputs(engine.run(call(COMPLETIONS, **fields, stream=True)))
    assert isinstance(whole, Answer)

    assert [WORD_ID] * 2 == whole.response["choices"][0]["token_ids"]
    assert [[WORD_ID]] * 2 == [piece.data[0]["choices"][0]["token_ids"] for piece in pieces if isinstance(piece, Piece)]
    assert 3 == whole.response["usage"]["prompt_tokens"]


async def test_stream_ends_with_its_usage(engine: SimulatedExecutor) -> None:
    """The usage comes in a chunk of its own, without text, if it is asked for."""
    options = {"include_usage": True}
    *_, last, _end = await outputs(engine.run(call(COMPLETIONS, max_tokens=2, stream=True, stream_options=options)))
    assert isinstance(last, Piece)
    (chunk,) = last.data

    assert [] == chunk["choices"]
    assert {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3} == chunk["usage"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, 16),
        ({"max_tokens": 3}, 3),
        ({"max_tokens": 3, "max_completion_tokens": 2}, 2),
        ({"max_tokens": 2**31 - 1}, 1000),
    ],
)
async def test_number_of_words(engine: SimulatedExecutor, fields: dict[str, Any], words: int) -> None:
    """A call gets as many words as it asks for, up to the length that the engine says it can."""
    await outputs(engine.run(call(**fields)))

    assert (await engine.account(CallId("c1"))).output_tokens == words


async def test_abort(engine: SimulatedExecutor) -> None:
    """A call that is closed early is counted up to there and runs no more."""
    started: list[CallId] = []
    engine.on_turn = lambda turn: started.append(turn.call_id)
    async with aclosing(engine.run(call(stream=True))) as run:
        await anext(run)
        await anext(run)
        running = engine.load().running
    account = await engine.account(CallId("c1"))

    assert (started, running, engine.load().running) == (["c1"], 1, 0)
    assert account.output_tokens == 2
    assert account.service_ms > 0


async def test_others_run_meanwhile(engine: SimulatedExecutor) -> None:
    """A long call leaves the event loop to others at each of its steps."""
    long = asyncio.create_task(outputs(engine.run(call(max_tokens=1000))))
    await outputs(engine.run(call(max_tokens=1)))

    assert not long.done()
    await long
