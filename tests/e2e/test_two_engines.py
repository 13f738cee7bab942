"""Two real engines with little room each: who is held goes where there is room, and a lost engine is no lost call."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import nats
import psutil
import pytest
from nats.aio.client import Client

from autellix.client import CallFailedError, Program
from autellix.client.connection import shared
from autellix.client.queries import get_program
from autellix.client.stack import Stack
from autellix.schemas import subjects
from autellix.schemas.codec import CALL_EVENTS, encode
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import AnyCallEvent, CallHeld, CallRouted, ControlEngine
from tests.e2e.conftest import PLAN

pytestmark = pytest.mark.vllm

PROGRAMS = 5
PROMPT = "word " * 60
"""300 tokens: each byte is one."""
TOKENS = 300
ROOM = 36
"""Blocks of 32 tokens: enough for one such program, not for two."""
VLLM_ARGS = ["--dtype", "float32", "--block-size", "32", "--num-gpu-blocks-override", str(ROOM)]
OVERRIDES = (
    "engine_worker.slots=4",
    "engine_worker.max_model_len=1024",
    "engine_worker.heartbeat_s=0.2",
    f"engine_worker.vllm_args={VLLM_ARGS}",
)


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """Return both engines, running; one of them is dead in the end."""
    plan = replace(PLAN, engines=2, policy=None, overrides=OVERRIDES, log_dir=tmp_path_factory.mktemp("logs"))
    async with Stack(plan) as stack:
        yield stack


@pytest.fixture
async def client(two: Stack) -> AsyncIterator[Client]:
    """Return a connection to their bus."""
    client = await nats.connect(two.nats_url)
    yield client
    await client.close()


async def agent(stack: Stack, number: int, tokens: int = TOKENS) -> int:
    """Run a program of one call, and return how many tokens it got."""
    async with Program(f"agent {number}", nats_url=stack.nats_url) as program:
        turn = {"role": "user", "content": f"{number} {PROMPT}"}
        answer = await program.chat([turn], max_tokens=tokens, ignore_eos=True)
    return int(answer.call.output_tokens)


async def test_held_programs_go_where_there_is_room(two: Stack, client: Client) -> None:
    """With one engine drained the other holds programs; when the first is back it takes some of them over."""
    events: list[AnyCallEvent] = []

    async def heard(msg: Any) -> None:
        events.append(CALL_EVENTS.decode(msg.data))

    async def order(action: str) -> None:
        await client.request(subjects.engine_control(EngineId("engine-1")), encode(ControlEngine(action=action)))

    await client.subscribe(subjects.CALL_EVENTS, cb=heard)
    await order("drain")
    running = [asyncio.create_task(agent(two, number)) for number in range(PROGRAMS)]
    async with asyncio.timeout(60):
        while len({event.call_id for event in events if isinstance(event, CallHeld)}) < PROGRAMS - 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await order("resume")
    tokens = await asyncio.gather(*running)
    routes = [event for event in events if isinstance(event, CallRouted)]
    moved = [event for event in routes if event.reason.startswith("home holds")]

    assert tokens == [TOKENS] * PROGRAMS
    assert {event.engine_id for event in moved} == {"engine-1"}
    assert len(routes) == PROGRAMS + len(moved)


async def test_killed_worker_takes_its_engine_along(two: Stack) -> None:
    """No process of it survives; a stream that began ends in one error, and whole answers come from the other one."""
    plain = [asyncio.create_task(agent(two, number, 150)) for number in range(4)]
    async with Program("bereft", nats_url=two.nats_url) as program:
        stream = aiter(program.stream([{"role": "user", "content": "Hi"}], max_tokens=900, ignore_eos=True))
        await anext(stream)
        async with shared(two.nats_url) as connection:
            (name,) = (await get_program(connection, program.id)).engines
        worker = psutil.Process(next(child.pid for child in two.children if child.name == name))
        family = worker.children(recursive=True)
        worker.kill()
        with pytest.raises(CallFailedError) as failed:
            async for _ in stream:
                pass
        tokens = await asyncio.gather(*plain)
        _, left = await asyncio.to_thread(psutil.wait_procs, family, timeout=10)
    alive = [process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    assert (failed.value.status, failed.value.error.code) == (503, "engine_lost")
    assert tokens == [150] * 4
    assert len(family) >= 2
    assert alive == []
