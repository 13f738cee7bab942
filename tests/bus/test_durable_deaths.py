"""Durable calls on a real NATS server: they have one result, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas.codec import FRAMES
from autellix.schemas.messages import (
    Accepted,
    Finished,
)
from tests.bus.durable_world import PATIENCE_S, SLOW, response

if TYPE_CHECKING:
    from autellix.services.durable_calls.service import DurableCallsService
    from tests.bus.durable_world import World


ONCE, TWICE, EITHER = {1}, {2}, {1, 2}
"""How often engines answer; from the queue on, taking a call in and trying it run side by side."""
STEPS = [
    ("store", "write", 1, "before", ONCE),
    ("store", "write", 1, "after", ONCE),
    ("store", "enqueue", 1, "before", ONCE),
    ("store", "enqueue", 1, "after", EITHER),
    ("store", "write", 2, "before", EITHER),
    ("store", "write", 2, "after", EITHER),
    ("attempts", "run", 1, "before", ONCE),
    ("attempts", "run", 1, "after", TWICE),
    ("store", "write", 3, "before", TWICE),
    ("store", "write", 3, "after", ONCE),
    ("results", "tell", 1, "before", ONCE),
    ("results", "tell", 1, "after", ONCE),
    ("_workers", "_done", 1, "before", ONCE),
    ("_workers", "_done", 1, "after", ONCE),
]
"""Where an instance stops for ever: part, method, which call of it, on which side; how often engines answer then."""


def halt(service: DurableCallsService, part: str, method: str, number: int, side: str) -> asyncio.Event:
    """Have an instance stop for ever at a step, and the others of it as well; return what tells when it is there."""
    reached, never = asyncio.Event(), asyncio.Event()
    counts = 0

    def wrap(part: str, method: str) -> None:
        owner = getattr(service, part)
        original = getattr(owner, method)

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal counts
            if reached.is_set():
                await never.wait()
            counts += mine(part, method)
            chosen = mine(part, method) and counts == number
            if chosen and side == "before":
                reached.set()
                await never.wait()
            result = await original(*args, **kwargs)
            if chosen:
                reached.set()
                await never.wait()
            return result

        setattr(owner, method, wrapped)

    def mine(*step: str) -> bool:
        return step == (part, method)

    for step in sorted({(part, method) for part, method, *_ in STEPS}):
        wrap(*step)
    return reached


@pytest.mark.parametrize(("part", "method", "number", "side", "executions"), STEPS)
async def test_service_dies_at(
    durable: World, part: str, method: str, number: int, side: str, executions: set[int]
) -> None:
    """At whichever step it dies, another life of it goes on, and there is one result."""
    service, _ = await durable.prepared()
    reached = halt(service, part, method, number, side)
    await service.__aenter__()
    inbox = await durable.submit("mine")
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
    await durable.kill()
    await durable.start()
    heard = [FRAMES.decode(data) for data in inbox.arrived()]
    if not any(isinstance(frame, Accepted) for frame in heard):  # its client sends it again
        again = await (await durable.submit("mine")).frames()
    else:
        again = heard if isinstance(heard[-1], Finished) else await inbox.frames()
    found = await durable.ended("mine")
    replayed = await (await durable.submit("mine")).frames()
    await durable.queue_is_empty()
    last = await durable.ended("mine")

    assert response(again[-1]) == response(found.result) == response(replayed[-1]) == response(last.result)
    assert found.result == last.result
    assert durable.executions() in executions


async def test_server_dies_during_a_call(durable: World) -> None:
    """The broker is killed and comes back on its files: the call is tried again, and has one result."""
    await durable.start()
    await durable.submit("mine", SLOW)
    await durable.client.heard.event("call.started")
    await durable.restart_server()
    found = await durable.ended("mine")
    again = await (await durable.submit("mine", SLOW)).frames()

    assert response(found.result) == response(again[-1])
    assert found.result == (await durable.ended("mine")).result


async def test_everything_dies(durable: World) -> None:
    """Broker, services and engine are gone at once, and begin anew: every call that was accepted has one result."""
    await durable.start()
    inboxes = {name: await durable.submit(name, SLOW) for name in ("one", "two", "three")}
    for inbox in inboxes.values():
        assert isinstance(FRAMES.decode((await inbox.next()).data), Accepted)
    await durable.client.heard.event("call.started")
    durable.server.kill()
    await durable.kill()
    await durable.pipeline.stop()
    durable.server.start()
    await durable.start_pipeline()
    await durable.start()
    found = {name: (await durable.ended(name)).result for name in inboxes}
    again = {name: (await (await durable.submit(name, SLOW)).frames())[-1] for name in inboxes}

    assert found == again
    assert len({response(frame)["id"] for frame in again.values()}) == 3
    assert durable.executions() == 3


async def test_instance_taken_for_dead(durable: World) -> None:
    """One that comes back with a result finds that of another one, which stays, and says nothing."""
    service, _ = await durable.prepared(concurrency=1)
    end, reached, go_on = service.results.end, asyncio.Event(), asyncio.Event()
    first: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def late(*args: Any) -> bool:
        reached.set()
        await go_on.wait()
        first.set_result(await end(*args))
        return first.result()

    setattr(service.results, "end", late)  # noqa: B010 - mypy takes it for a method
    setattr(service._workers, "_alive", lambda _message: contextlib.nullcontext())  # noqa: B010
    await service.__aenter__()
    inbox = await durable.submit("mine")
    await reached.wait()
    await durable.start()
    frames = await inbox.frames()
    go_on.set()

    assert not await first
    assert inbox.arrived() == []
    assert (await durable.ended("mine")).result == frames[-1]
    assert durable.executions() == 2
