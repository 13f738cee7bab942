"""Engines that are lost, or only taken for lost: their calls run elsewhere, and nothing is said twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from autellix.schemas import subjects
from autellix.schemas.codec import encode
from autellix.schemas.ids import CallId, EngineId, Incarnation
from autellix.schemas.messages import (
    Accepted,
    CallFinished,
    CallRouted,
    EngineDown,
    Failed,
    Finished,
    ForgetCalls,
    ListEngines,
)

if TYPE_CHECKING:
    from tests.bus.conftest import Client, Pipeline

STEP_MS = 5.0
LONG_STEP_MS = 400.0
LONG = {"max_tokens": 100}


async def lose(client: Client, engine_id: str, reason: str = "its engine died") -> None:
    """Have an engine said to be gone; it is there, and would go on."""
    listed: Any = await client.ask(subjects.ENGINES_LIST, ListEngines())
    (load,) = [each for each in listed.engines if each.engine_id == engine_id]
    down = EngineDown(engine_id=load.engine_id, incarnation=load.incarnation, reason=reason, at_ms=0.0)
    await client.bus.publish(subjects.event(down), encode(down))


async def routed(client: Client, count: int = 1) -> list[CallRouted]:
    """Return the next events that say where calls go."""
    return [await client.heard.event("call.routed") for _ in range(count)]


async def test_call_runs_elsewhere(pipeline: Pipeline) -> None:
    """The answer to a call whose engine is lost comes from another one, once, and is charged once."""
    for name in ("e0", "e1"):
        await pipeline.start_engine(name, step_ms=STEP_MS)
    client = pipeline.client
    inbox = await client.submit(LONG)
    (first,) = await routed(client)
    await client.heard.event("call.started")
    await lose(client, first.engine_id)
    (second,) = await routed(client)
    frames = await inbox.frames()
    await asyncio.sleep(0.3)  # the first engine would have answered by now
    ends = [event for event in client.events() if isinstance(event, CallFinished)]

    assert {first.engine_id, second.engine_id} == {"e0", "e1"}
    assert second.reason == "run again (its engine died)"
    assert [type(frame) for frame in frames] == [Accepted, Finished]
    assert isinstance(frames[-1], Finished)
    assert frames[-1].response["usage"]["completion_tokens"] == 100
    assert inbox.arrived() == []
    assert [end.engine_id for end in ends] == [second.engine_id]
    assert await pipeline.engines() == {"e0": 0, "e1": 0}


async def test_stream_that_began_ends(pipeline: Pipeline) -> None:
    """A stream whose client has seen a part of it ends with a failure that says so, and not another word comes.

    Its steps are long, so that none falls between that end and the moment at which its engine hears of it.
    """
    for name in ("e0", "e1"):
        await pipeline.start_engine(name, step_ms=LONG_STEP_MS)
    client = pipeline.client
    inbox = await client.submit({**LONG, "stream": True})
    (first,) = await routed(client)
    await client.heard.event("call.started")
    await lose(client, first.engine_id)
    frames = await inbox.frames()
    await asyncio.sleep(2 * LONG_STEP_MS / 1000)

    assert isinstance(frames[-1], Failed)
    assert (frames[-1].status, frames[-1].error.code) == (503, "engine_lost")
    assert [type(client.decoded(data)) for data in inbox.arrived()] == []


async def test_orders_for_another_life(pipeline: Pipeline) -> None:
    """An order to forget the calls of an earlier life of an engine does not touch those of this one."""
    await pipeline.start_engine("e0", step_ms=STEP_MS)
    client = pipeline.client
    inbox = await client.submit(LONG)
    (event,) = await routed(client)
    order = ForgetCalls(incarnation=Incarnation("before"), call_ids=(event.call_id, CallId("other")))
    await client.bus.publish(subjects.engine_forget(EngineId("e0")), encode(order))

    assert isinstance((await inbox.frames())[-1], Finished)


async def test_worker_that_stood_still(pipeline: Pipeline) -> None:
    """A worker that was frozen for longer than others wait for it says nothing more of its calls; it begins anew."""
    workers = {name: await pipeline.start_engine(name, step_ms=STEP_MS) for name in ("e0", "e1")}
    client = pipeline.client
    inbox = await client.submit(LONG)
    (first,) = await routed(client)
    await client.heard.event("call.started")
    workers[first.engine_id]._alive._renewed_at_s -= 6.0
    up = await client.heard.event("engine.up")
    frames = await inbox.frames()
    await asyncio.sleep(0.3)
    ends = [event for event in client.events() if isinstance(event, CallFinished)]

    assert up.engine_id == first.engine_id
    assert [type(frame) for frame in frames] == [Accepted, Finished]
    assert inbox.arrived() == []
    assert [end.engine_id == first.engine_id for end in ends] == [False]
    assert await pipeline.engines() == {"e0": 0, "e1": 0}
