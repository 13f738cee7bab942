"""Two instances of a service that remembers: one is active, the other takes over; real processes on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from autellix.client.child import Child, start_child
from autellix.engine.executor import EngineInfo
from autellix.engine.simulated import SimulatedExecutor
from autellix.schemas import subjects
from autellix.schemas.codec import encode
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import GetProgram, ListEngines, ProgramRecord, SessionStarted, StartSession
from autellix.services.config import EngineWorkerSettings, LoadBalancerSettings
from autellix.services.engine_worker.shell import EngineWorker
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.load_balancer.listens import LISTENS as BALANCER
from autellix.services.nats_bus import NatsBus, connect
from autellix.services.runner import CoreRunner
from tests.bus.conftest import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"
PATIENCE_S = 30.0
MANAGER, TABLE = "session_manager", "process_table"


class First:
    """Chance that takes the first."""

    def choice(self, seq: list[str], /) -> str:
        """Return the first element."""
        return seq[0]


class Instance:
    """One process of a service."""

    def __init__(self, child: Child, log: Path) -> None:
        self.child = child
        self._log = log

    def lines(self) -> list[dict[str, Any]]:
        """Return what it has logged."""
        lines = self._log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def said(self, event: str) -> bool:
        """Tell whether it logged this."""
        return event in [line["event"] for line in self.lines()]

    async def until(self, event: str) -> None:
        """Return when it has logged this."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.said(event):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.005)

    def signal(self, name: signal.Signals) -> None:
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child.pid, name)


class World:
    """A server, a balancer, an engine, a client, and instances of the two services."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._folder = folder
        self._numbers = itertools.count()
        self._server: subprocess.Popen[bytes]
        self._instances: list[Instance] = []
        self.stack = contextlib.AsyncExitStack()
        self.client: Client

    def start_server(self, *options: str) -> None:
        """Start the server, on the files that it had."""
        conf = self._folder / "nats-server.conf"
        conf.write_text('ping_interval: "2s", ping_max: 2')  # as shipped: what is frozen is cut off
        store = options or ("-js", "-sd", str(self._folder / "jetstream"))
        command = [str(SERVER), "-a", "127.0.0.1", "-p", str(self._port), "-c", str(conf), *store]
        self._server = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill_server(self) -> None:
        """Kill it, and return when it is gone."""
        self._server.kill()
        self._server.wait()

    async def connected(self) -> NatsBus:
        """Return one more connection."""
        bus = await connect(f"nats://127.0.0.1:{self._port}", name="test")
        self.stack.push_async_callback(bus.close)
        return bus

    async def start_rest(self) -> None:
        """Start what is there once."""
        balancer = LoadBalancer(LoadBalancerSettings(), First())
        await self.stack.enter_async_context(CoreRunner(await self.connected(), balancer, BALANCER))
        executor = SimulatedExecutor(EngineInfo(("m",), "atlas", 4, 100_000, 100_000))
        settings = EngineWorkerSettings(engine_id="e0", heartbeat_s=0.1)
        worker = EngineWorker(await self.connected(), executor, settings, on_gone=lambda: None)
        await self.stack.enter_async_context(worker)
        self.client = Client(await self.connected())  # it hears not everything: that would be to hear the holder

    async def start(self, service: str) -> Instance:
        """Start an instance, and return it when it says that it is ready."""
        name = f"{service}-{next(self._numbers)}"
        command = [sys.executable, "-m", f"autellix.services.{service}"]
        command += ["--set", f"nats.url=nats://127.0.0.1:{self._port}"]
        log = self._folder / f"{name}.log"
        child = await start_child(name, command, log=log, notify=self._folder / f"{name}.sock")
        instance = Instance(child, log)
        self._instances.append(instance)
        async with asyncio.timeout(PATIENCE_S):
            await child.readiness.event.wait()
        return instance

    async def close(self) -> None:
        """Stop everything."""
        for instance in self._instances:
            instance.signal(signal.SIGCONT)
            await instance.child.stop(10)
        await self.stack.aclose()
        self.kill_server()

    async def begin(self, name: str) -> ProgramId:
        """Begin a program."""
        started: SessionStarted = await self.client.ask(subjects.SESSIONS_START, StartSession(name=name))
        return started.program_id

    async def call(self, program_id: ProgramId) -> str:
        """Make a call of a program; return what its last frame is."""
        async with asyncio.timeout(PATIENCE_S):
            inbox = await self.client.submit({"max_tokens": 2}, program_id=program_id)
            return type((await inbox.frames())[-1]).__name__

    async def record(self, program_id: ProgramId) -> ProgramRecord:
        """Return what the process table knows of a program."""
        found: ProgramRecord = await self.client.ask(subjects.PROGRAMS_GET, GetProgram(program_id=program_id))
        return found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Return a world without instances yet."""
    world = World(tmp_path)
    world.start_server()
    await world.start_rest()
    yield world
    await world.close()


async def two(world: World, service: str) -> tuple[Instance, Instance]:
    """Return an active instance, and one that stands by."""
    active = await world.start(service)
    other = await world.start(service)
    assert (active.said("active"), other.said("active"), other.said("standby")) == (True, False, True)
    return active, other


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_active_one_goes(world: World, how: signal.Signals) -> None:
    """Killed or stopped, another one takes its place, knows every program, and calls go on."""
    manager, next_manager = await two(world, MANAGER)
    table, next_table = await two(world, TABLE)
    programs = [await world.begin(f"p{number}") for number in range(3)]
    before = [await world.call(program_id) for program_id in programs]
    for instance in (manager, table):
        instance.signal(how)
    for instance in (next_manager, next_table):
        await instance.until("recovered")
    after = [await world.call(program_id) for program_id in programs]
    records = [await world.record(program_id) for program_id in programs]

    assert before + after == ["Finished"] * 6
    assert [(record.name, record.calls, record.live_calls) for record in records] == [
        (f"p{number}", 2, 0) for number in range(3)
    ]
    if how == signal.SIGTERM:
        assert [await each.child.ended() for each in (manager, table)] == [0, 0]


async def test_holder_was_frozen(world: World) -> None:
    """Another one takes its place; when it thaws it answers nothing that it was asked meanwhile, and ends."""
    manager, other = await two(world, MANAGER)
    await world.start(TABLE)
    program_id = await world.begin("p")
    manager.signal(signal.SIGSTOP)
    asked = await world.client.send(subjects.SESSIONS_START, encode(StartSession(name="asked the frozen one")))
    await other.until("recovered")
    manager.signal(signal.SIGCONT)
    async with asyncio.timeout(PATIENCE_S):
        status = await manager.child.ended()

    assert status == 1
    assert manager.lines()[-1]["event"] == "stood down"
    assert manager.lines()[-1]["level"] == "error"
    assert asked.arrived() == []
    assert await world.call(program_id) == "Finished"
    assert (await world.record(program_id)).calls == 1


async def test_one_alone_comes_back_at_once(world: World) -> None:
    """An instance that is killed and started again does not wait for the lease of its earlier life."""
    first = await world.start(TABLE)
    first.signal(signal.SIGKILL)
    await first.child.ended()
    again = await world.start(TABLE)

    assert (again.said("active"), again.said("standby")) == (True, False)


async def test_server_dies(world: World) -> None:
    """The lease is on file: after the death of the server the active one is, and the other stands by."""
    manager, other = await two(world, MANAGER)
    await world.start(TABLE)
    program_id = await world.begin("p")
    before = await world.call(program_id)
    world.kill_server()
    world.start_server()
    for instance in (manager, other):
        await instance.until("nats reconnected")
    async with asyncio.timeout(PATIENCE_S):
        while not world.client.bus.connected:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        while "e0" not in await engines(world):
            pass
    after = await world.call(program_id)
    manager.signal(signal.SIGKILL)
    await other.until("recovered")

    assert [line["event"] for line in other.lines()].count("active") == 1
    assert [before, after, await world.call(program_id)] == ["Finished"] * 3


async def engines(world: World) -> list[str]:
    """Return the engines in rotation."""
    listed = await world.client.ask(subjects.ENGINES_LIST, ListEngines())
    return [load.engine_id for load in listed.engines]


async def test_without_jetstream(tmp_path: Path) -> None:
    """Where there is no lease to be had whoever starts is active, and says that it remembers nothing."""
    world = World(tmp_path)
    world.start_server("-T")
    try:
        one, other = await asyncio.gather(world.start(TABLE), world.start(TABLE))
        for instance in (one, other):
            assert instance.said("nothing is remembered")
            assert [line["leased"] for line in instance.lines() if line["event"] == "active"] == [False]
    finally:
        await world.close()
