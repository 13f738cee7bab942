"""Durable calls on a real NATS server: executed to one result, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.codec import FRAMES, encode
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import (
    Accepted,
    CallFinished,
    CallResult,
    CancelCalls,
    Failed,
    Finished,
    Frame,
    GetResult,
    SubmitCall,
)
from autellix.services.config import DurableCallsSettings
from autellix.services.durable_calls.service import DurableCallsService
from autellix.services.durable_calls.store import STREAM
from autellix.services.nats_bus import NatsBus, connect
from tests.bus.conftest import BODY, PATIENCE_S, Client, Inbox, Pipeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"
SETTINGS: dict[str, Any] = {"heartbeat_s": 0.3, "concurrency": 4, "accept_s": 2.0}
SLOW = {"max_tokens": 60}
STEP_MS = 10.0


class Server:
    """A nats-server that a test may kill and start again on its files."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._folder = folder

    def start(self, *, jetstream: bool = True) -> None:
        """Start it; clients connect as soon as they can."""
        kept = ["-js", "-sd", str(self._folder)] if jetstream else []
        command = [str(SERVER), "-a", "127.0.0.1", "-p", str(self.port), *kept]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill it, and return when it is gone."""
        self._process.kill()
        self._process.wait()


class World:
    """A server, a pipeline with one simulated engine, instances of the service, and a client outside."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder)
        self.ahead_ms = 0.0
        """How far the services' clock is ahead."""
        self._buses: list[NatsBus] = []
        self._instances: list[tuple[DurableCallsService, NatsBus]] = []
        self.pipeline: Pipeline

    def now_ms(self) -> float:
        """Return the time of the services."""
        return time.time() * 1000 + self.ahead_ms

    async def connect(self) -> NatsBus:
        """Return one more client of the server."""
        bus = await connect(self.server.url, name="test")
        self._buses.append(bus)
        return bus

    async def start_pipeline(self, *, engine: bool = True, step_ms: float = STEP_MS) -> None:
        """Start the services that every call passes."""
        self.pipeline = Pipeline(self.connect)
        await self.pipeline.start()
        if engine:
            await self.pipeline.start_engine(step_ms=step_ms)

    @property
    def client(self) -> Client:
        """Somebody outside."""
        return self.pipeline.client

    async def start(self, **settings: Any) -> DurableCallsService:
        """Start an instance."""
        service, _ = await self.prepared(**settings)
        await service.__aenter__()
        return service

    async def prepared(self, **settings: Any) -> tuple[DurableCallsService, NatsBus]:
        """Return an instance that is not started yet."""
        bus = await connect(self.server.url, name="durable")
        wanted = DurableCallsSettings(**{**SETTINGS, **settings})
        service = DurableCallsService(bus, wanted, now_ms=self.now_ms, drain_s=0.1)
        self._instances.append((service, bus))
        return service, bus

    async def kill(self) -> None:
        """End the first instance without any warning: it says nothing more."""
        service, bus = self._instances.pop(0)
        await bus._client.close()
        await service.__aexit__()

    async def close(self) -> None:
        """End everything."""
        for service, bus in self._instances:
            await service.__aexit__()
            await bus.close()
        await self.pipeline.stop()
        for bus in self._buses:
            await bus.close()

    async def submit(self, call_id: str, body: dict[str, Any] | None = None, **fields: Any) -> Inbox:
        """Submit a durable call."""
        return await self.client.submit(body, durable=True, id=call_id, **fields)

    async def result(self, call_id: str) -> Any:
        """Return what a client is told that asks for a call."""
        return await self.client.ask(subjects.CALLS_RESULT, GetResult(id=call_id))

    async def ended(self, call_id: str) -> CallResult:
        """Return a call's result once it is there."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.result(call_id)
                if isinstance(found, CallResult) and found.result:
                    return found
                await asyncio.sleep(0.02)

    async def queue_is_empty(self) -> None:
        """Return when nothing of any call can come again."""
        jetstream = (await self.connect()).jetstream()
        async with asyncio.timeout(PATIENCE_S):
            while (await jetstream.stream_info(STREAM)).state.messages:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)

    def executions(self) -> int:
        """Return how many calls engines have ended, since this was asked last."""
        return len([event for event in self.client.events() if isinstance(event, CallFinished)])


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[World]:
    """Return a server, and nothing else."""
    world = World(tmp_path)
    world.server.start()
    try:
        yield world
        await world.close()
    finally:
        world.server.kill()


@pytest.fixture
async def world(bare: World) -> World:
    """Return a server and a pipeline, without the service."""
    await bare.start_pipeline()
    return bare


def response(frame: Frame | None) -> Any:
    """Return the answer in the last frame of a call that was answered."""
    assert isinstance(frame, Finished), frame
    return frame.response


async def test_once_by_id(world: World) -> None:
    """The same id again is not executed again: it gets the answer that is there, and is told so."""
    await world.start()
    first = await (await world.submit("mine")).frames()
    again = await (await world.submit("mine")).frames()
    found = await world.ended("mine")

    assert [type(frame) for frame in first] == [Accepted, Finished]
    assert isinstance(first[0], Accepted)
    assert (first[0].call_id, first[0].durable, first[0].replayed) == ("mine", True, False)
    assert isinstance(again[0], Accepted)
    assert again[0].replayed
    assert response(first[-1]) == response(again[-1]) == response(found.result)
    assert world.executions() == 1


async def test_who_joins_a_pending_call(world: World) -> None:
    """Everybody who asks while a call is pending hears its one result."""
    await world.start()
    inboxes = [await world.submit("mine", SLOW) for _ in range(3)]
    answers = [await inbox.frames() for inbox in inboxes]

    assert [[type(frame) for frame in frames] for frames in answers] == [[Accepted, Finished]] * 3
    assert len({response(frames[-1])["id"] for frames in answers}) == 1
    assert world.executions() == 1


async def test_another_call_under_the_same_id(world: World) -> None:
    """It is refused, whether the first has ended or not, and the first is not disturbed."""
    await world.start()
    inbox = await world.submit("mine", SLOW)
    during = await (await world.submit("mine", {"max_tokens": 9})).frames()
    frames = await inbox.frames()
    after = await (await world.submit("mine", {"max_tokens": 9})).frames()

    assert isinstance(frames[-1], Finished)
    for (refused,) in (during, after):
        assert isinstance(refused, Failed)
        assert (refused.status, refused.error.code, refused.retry_safe) == (409, "idempotency_conflict", False)
    assert world.executions() == 1


async def test_result_is_fetched_later(world: World) -> None:
    """Nobody has to wait: a call is pending, then its result is there, for its time; then the id is free."""
    await world.start(results_kept_s=60.0)
    name = world.client.bus.new_inbox()
    call = SubmitCall(body={**BODY, **SLOW}, durable=True, id="mine")
    await world.client.bus.publish(subjects.CALLS_SUBMIT, encode(call), reply=name)
    async with asyncio.timeout(PATIENCE_S):
        while not isinstance(pending := await world.result("mine"), CallResult):
            pass
    found = await world.ended("mine")
    unknown = await world.result("other")
    world.ahead_ms = 61_000.0
    expired = await world.result("mine")
    again = await (await world.submit("mine", {"max_tokens": 2})).frames()

    assert pending.result is None
    assert pending.kept_until_ms is None
    assert found.waited_ms > 0
    assert [(each.status, each.error.code) for each in (unknown, expired)] == [(404, "call_not_found")] * 2
    assert response(again[-1])["usage"]["completion_tokens"] == 2
    assert world.executions() == 2


async def test_tenants(world: World) -> None:
    """The same id of another tenant is another call, and a tenant's result is for it alone."""
    await world.start()
    mine = await (await world.submit("mine")).frames()
    call = SubmitCall(body={**BODY, "max_tokens": 5}, durable=True, id="mine")
    theirs = await (await world.client.send("autellix.tenants.acme.calls.submit", encode(call))).frames()
    found = await world.client.ask("autellix.tenants.acme.calls.result", GetResult(id="mine"))
    others = await world.client.ask("autellix.tenants.other.calls.result", GetResult(id="mine"))

    assert response(mine[-1]) != response(theirs[-1]) == response(found.result)
    assert others.status == 404


async def test_cancel(world: World) -> None:
    """A call that is cancelled by its id ends for everybody, and its engine is free."""
    await world.start()
    inbox = await world.submit("mine", {"max_tokens": 10_000})
    await world.client.heard.event("call.started")
    await world.client.send(subjects.CALLS_CANCEL, encode(CancelCalls(call_id=CallId("mine"))))
    frames = await inbox.frames()
    await world.client.heard.event("call.cancelled")
    found = await world.ended("mine")

    assert isinstance(frames[-1], Failed)
    assert (frames[-1].status, frames[-1].error.code) == (499, "cancelled")
    assert found.result == frames[-1]


async def test_failures_are_results(world: World) -> None:
    """What would fail each time is not tried again: its failure is the result."""
    await world.start()
    inbox = await world.submit("mine", program_id=ProgramId("never-began"))
    frames = await inbox.frames()
    found = await world.ended("mine")

    assert isinstance(frames[-1], Failed)
    assert (frames[-1].status, frames[-1].error.code) == (404, "program_not_found")
    assert found.result == frames[-1]


async def test_deadline(bare: World) -> None:
    """It counts from the submission, over all tries."""
    await bare.start_pipeline(engine=False)
    await bare.start()
    frames = await (await bare.submit("mine", deadline_ms=700.0)).frames()

    assert isinstance(frames[-1], Failed)
    assert (frames[-1].status, frames[-1].error.code) == (504, "deadline_exceeded")


async def test_call_waits_for_an_engine(bare: World) -> None:
    """Where nobody can answer now a call is tried again, until somebody can."""
    await bare.start_pipeline(engine=False)
    await bare.start()
    inbox = await bare.submit("mine")
    await bare.client.heard.event("call.failed")
    await bare.pipeline.start_engine()

    assert isinstance((await inbox.frames())[-1], Finished)


async def test_two_instances(world: World) -> None:
    """They share the work, and each call is executed once."""
    for _ in range(2):
        await world.start()
    inboxes = [await world.submit(f"call {number}") for number in range(20)]
    answers = [await inbox.frames() for inbox in inboxes]

    assert [[type(frame) for frame in frames] for frames in answers] == [[Accepted, Finished]] * 20
    assert world.executions() == 20


async def test_no_room(world: World) -> None:
    """What cannot be kept is not accepted, and may be sent again."""
    await world.start(results_max_bytes=40_000)
    ends: list[Frame] = []
    async with asyncio.timeout(2 * PATIENCE_S):
        while not (ends and isinstance(ends[-1], Failed)):
            ends.append((await (await world.submit(f"call {len(ends)}", {"max_tokens": 1})).frames())[-1])
    refused = ends.pop()

    assert isinstance(refused, Failed)
    assert (refused.status, refused.error.code, refused.retry_safe) == (503, "durable_full", True)
    assert ends
    assert all(isinstance(end, Finished) for end in ends)


# --- deaths

STEPS = [
    ("store", "write", 1, "before", 1),
    ("store", "write", 1, "after", 1),
    ("store", "enqueue", 1, "before", 1),
    ("store", "enqueue", 1, "after", 1),
    ("store", "write", 2, "before", 1),
    ("store", "write", 2, "after", 1),
    ("attempts", "run", 1, "before", 1),
    ("attempts", "run", 1, "after", 2),
    ("store", "write", 3, "before", 2),
    ("store", "write", 3, "after", 1),
    ("results", "tell", 1, "before", 1),
    ("results", "tell", 1, "after", 1),
    ("_workers", "_done", 1, "before", 1),
    ("_workers", "_done", 1, "after", 1),
]
"""Where an instance stops for ever: part, method, which call of it, on which side; and how often engines answer."""


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
async def test_service_dies_at(world: World, part: str, method: str, number: int, side: str, executions: int) -> None:
    """At whichever step it dies, another life of it goes on, and there is one result."""
    service, _ = await world.prepared()
    reached = halt(service, part, method, number, side)
    await service.__aenter__()
    inbox = await world.submit("mine")
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
    await world.kill()
    await world.start()
    heard = [FRAMES.decode(data) for data in inbox.arrived()]
    if not any(isinstance(frame, Accepted) for frame in heard):  # its client sends it again
        again = await (await world.submit("mine")).frames()
    else:
        again = heard if isinstance(heard[-1], Finished) else await inbox.frames()
    found = await world.ended("mine")
    replayed = await (await world.submit("mine")).frames()
    await world.queue_is_empty()
    last = await world.ended("mine")

    assert response(again[-1]) == response(found.result) == response(replayed[-1]) == response(last.result)
    assert found.result == last.result
    assert world.executions() == executions


async def test_server_dies_during_a_call(world: World) -> None:
    """The broker is killed and comes back on its files: the call is tried again, and has one result."""
    await world.start()
    await world.submit("mine", SLOW)
    await world.client.heard.event("call.started")
    world.server.kill()
    await asyncio.sleep(1.0)  # everybody notices
    world.server.start()
    found = await world.ended("mine")
    again = await (await world.submit("mine", SLOW)).frames()

    assert response(found.result) == response(again[-1])
    assert found.result == (await world.ended("mine")).result


async def test_everything_dies(world: World) -> None:
    """Broker, services and engine are gone at once, and begin anew: every call that was accepted has one result."""
    await world.start()
    inboxes = {name: await world.submit(name, SLOW) for name in ("one", "two", "three")}
    for inbox in inboxes.values():
        assert isinstance(FRAMES.decode((await inbox.next()).data), Accepted)
    await world.client.heard.event("call.started")
    world.server.kill()
    await world.kill()
    await world.pipeline.stop()
    world.server.start()
    await world.start_pipeline()
    await world.start()
    found = {name: (await world.ended(name)).result for name in inboxes}
    again = {name: (await (await world.submit(name, SLOW)).frames())[-1] for name in inboxes}

    assert found == again
    assert len({response(frame)["id"] for frame in again.values()}) == 3
    assert world.executions() == 3


async def test_without_jetstream(bare: World) -> None:
    """Nothing is accepted that cannot be kept; once it can, it is."""
    bare.server.kill()
    bare.server.start(jetstream=False)
    await bare.start_pipeline()
    await bare.start()
    (refused,) = await (await bare.submit("mine")).frames()
    unknown = await bare.result("mine")

    assert isinstance(refused, Failed)
    assert (refused.status, refused.error.code, refused.retry_safe) == (503, "durable_not_kept", True)
    assert (unknown.status, unknown.error.code) == (503, "durable_not_kept")
