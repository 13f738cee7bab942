"""A process that is told to stop with streams in flight: each of them is ended, and the process ends well."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator

import httpx
import pytest

from autellix.client.plan import Plan
from autellix.client.stack import Stack

SIMULATED = ("engine_worker.backend=simulated", "engine_worker.simulated_step_ms=5")
DRAINS = ("engine_worker.drain_s=0.5", "gateway.drain_s=0.5")
PLAN = Plan(model="tiny", port=0, overrides=(*SIMULATED, *DRAINS))
STREAMS = 10
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50_000, "stream": True}


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    """Return a stack of its own, whose processes drain for half a second."""
    async with Stack(PLAN) as stack:
        yield stack


async def follow(http: httpx.AsyncClient, begun: "asyncio.Queue[None]") -> list[str]:
    """Return the last two events of a long stream."""
    events: list[str] = []
    async with http.stream("POST", "/v1/chat/completions", json=BODY) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(line.removeprefix("data: "))
                if len(events) == 1:
                    begun.put_nowait(None)
    return events[-2:]


@pytest.mark.parametrize("name", ["engine-0", "gateway"])
async def test_every_stream_is_ended_and_the_status_is_zero(stack: Stack, name: str) -> None:
    """Those that outlast the drain end in an error and `[DONE]`, and SIGTERM is no failure."""
    (child,) = [each for each in stack.children if each.name == name]
    async with httpx.AsyncClient(base_url=stack.http_url, timeout=60) as http, asyncio.timeout(60):
        begun: asyncio.Queue[None] = asyncio.Queue()
        following = [asyncio.create_task(follow(http, begun)) for _ in range(STREAMS)]
        for _ in range(STREAMS):
            await begun.get()
        os.kill(child.pid, signal.SIGTERM)
        ends = await asyncio.gather(*following)
        status = await child.ended()
    codes = {json.loads(error)["error"]["code"] for error, _ in ends}

    assert status == 0
    assert codes == {"engine_stopping" if name == "engine-0" else "gateway_stopping"}
    assert [done for _, done in ends] == ["[DONE]"] * STREAMS
