"""What the protocol promises to outsiders: nats-py and msgpack alone, nothing of ours, is enough to take part."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgpack
import nats
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client as NatsClient

    from tests.bus.conftest import Pipeline

BODY = {"model": "m", "stream": True, "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}]}


pytestmark = pytest.mark.parametrize("connected", ["nats"], indirect=True)


@pytest.fixture
async def outsider(nats_url: str) -> AsyncIterator[NatsClient]:
    """Return a connection of nats-py."""
    client = await nats.connect(nats_url)
    yield client
    await client.drain()


async def test_twenty_lines(pipeline: Pipeline, outsider: NatsClient) -> None:
    """An outsider starts a program, streams a call, reads the table and ends the program."""
    await pipeline.start_engine()

    async def ask(subject: str, **message: Any) -> dict[str, Any]:
        answer = await outsider.request(subject, msgpack.packb(message), timeout=5)
        return msgpack.unpackb(answer.data)  # type: ignore[no-any-return]

    program = await ask("autellix.sessions.start", type="start_session", name="outsider")
    inbox = outsider.new_inbox()
    answers = await outsider.subscribe(inbox)
    call = {"type": "submit_call", "program_id": program["program_id"], "body": BODY}
    await outsider.publish("autellix.calls.submit", msgpack.packb(call), reply=inbox)
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["type"] not in ("finished", "failed"):
        frames.append(msgpack.unpackb((await answers.next_msg(timeout=5)).data))
    record = await ask("autellix.programs.get", type="get_program", program_id=program["program_id"])
    over = await ask("autellix.sessions.end", type="end_session", program_id=program["program_id"])

    assert [frame["type"] for frame in frames] == ["accepted", "chunk", "chunk", "chunk", "finished"]
    assert [frame["seq"] for frame in frames[1:]] == [1, 2, 3, 4]
    assert frames[1]["data"][0]["choices"][0]["delta"]["content"] == "ok "
    assert (record["calls"], record["output_tokens"], record["threads"]["main"]["calls"]) == (1, 3, 1)
    assert over["type"] == "session_ended"


async def test_reader_of_events(pipeline: Pipeline, outsider: NatsClient) -> None:
    """An auditor that subscribes to the events reads every one with msgpack alone."""
    seen: dict[str, dict[str, Any]] = {}
    ended = asyncio.Event()

    async def hear(msg: Any) -> None:
        event = msgpack.unpackb(msg.data)
        seen[event["type"]] = event
        if event["type"] == "program.ended":
            ended.set()

    await outsider.subscribe("autellix.events.>", cb=hear)
    await outsider.flush()
    await pipeline.start_engine()
    await (await pipeline.client.submit()).frames()
    async with asyncio.timeout(5):
        await ended.wait()

    assert {"engine.up", "program.started", "call.submitted", "call.finished", "program.ended"} <= set(seen)
    assert seen["call.finished"]["output_tokens"] == 3
    assert seen["call.finished"]["engine_id"] == "e0"
