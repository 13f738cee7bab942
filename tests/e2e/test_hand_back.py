"""A program that one engine holds, for lack of room for its cache, goes to another with room; real engines."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import pytest

from autellix.client import Program
from autellix.client.connection import shared
from autellix.client.plan import Plan
from autellix.client.stack import Stack
from autellix.schemas import subjects
from autellix.schemas.codec import CALL_EVENTS, encode
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import AnyCallEvent, CallHeld, CallRouted, ControlEngine

pytestmark = pytest.mark.vllm

PROGRAMS = 5
PROMPT = "word " * 60
"""300 tokens: each byte is one."""
TOKENS = 300
ROOM = 36
"""Blocks of 32 tokens: enough for one such program, not for two."""


@pytest.fixture
def two_engines(plan: Plan, tmp_path: Path) -> Plan:
    """Return two engines with little room each."""
    arguments = ["--dtype", "float32", "--block-size", "32", "--num-gpu-blocks-override", str(ROOM)]
    overrides = (
        "engine_worker.slots=4",
        "engine_worker.max_model_len=1024",
        "engine_worker.heartbeat_s=0.2",
        f"engine_worker.vllm_args={arguments}",
    )
    return replace(plan, engines=2, policy=None, overrides=overrides, log_dir=tmp_path)


async def test_held_programs_go_where_there_is_room(two_engines: Plan) -> None:
    """With one engine drained the other holds programs; when the first is back it takes some of them over."""
    events: list[AnyCallEvent] = []
    async with Stack(two_engines) as stack:
        client = await nats.connect(stack.nats_url)

        async def heard(msg: Any) -> None:
            events.append(CALL_EVENTS.decode(msg.data))

        await client.subscribe(subjects.CALL_EVENTS, cb=heard)

        async def order(action: str) -> None:
            async with shared(stack.nats_url):
                subject = subjects.engine_control(EngineId("engine-1"))
                await client.request(subject, encode(ControlEngine(action=action)))

        async def agent(number: int) -> int:
            async with Program(f"agent {number}", nats_url=stack.nats_url) as program:
                turn = {"role": "user", "content": f"{number} {PROMPT}"}
                answer = await program.chat([turn], max_tokens=TOKENS, ignore_eos=True)
            return int(answer.call.output_tokens)

        await order("drain")
        running = [asyncio.create_task(agent(number)) for number in range(PROGRAMS)]
        async with asyncio.timeout(60):
            while len({event.call_id for event in events if isinstance(event, CallHeld)}) < PROGRAMS - 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await order("resume")
        tokens = await asyncio.gather(*running)
        await client.close()
    routes = [event for event in events if isinstance(event, CallRouted)]
    moved = [event for event in routes if event.reason.startswith("home holds")]

    assert tokens == [TOKENS] * PROGRAMS
    assert {event.engine_id for event in moved} == {"engine-1"}
    assert len(routes) == PROGRAMS + len(moved)
