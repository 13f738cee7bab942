"""Durable calls, all that they need, and what a test may kill of it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autellix.schemas import subjects
from autellix.schemas.messages import CallFinished, CallResult, Finished, Frame, GetResult
from autellix.services.config import DurableCallsSettings
from autellix.services.durable_calls.service import DurableCallsService
from autellix.services.durable_calls.store import STREAM
from autellix.services.nats_bus import NatsBus, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bus.conftest import Client, Connect, Inbox, Pipeline

PATIENCE_S = 10.0
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

    def __init__(self, folder: Path, make: Callable[[Connect], Pipeline]) -> None:
        self.server = Server(folder)
        self._make = make
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
        self.pipeline = self._make(self.connect)
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
        service = DurableCallsService(bus, wanted, now_ms=self.now_ms, drain_s=0.1, report_s=0.1)
        self._instances.append((service, bus))
        return service, bus

    async def restart_server(self) -> None:
        """Kill the server, start it again on its files, and return when everybody is connected to it."""
        buses = [*self._buses, *(bus for _, bus in self._instances)]
        before = [bus.reconnects for bus in buses]
        self.server.kill()
        self.server.start()
        async with asyncio.timeout(PATIENCE_S):
            while not all(bus.reconnects > count for bus, count in zip(buses, before, strict=True)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

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


def response(frame: Frame | None) -> Any:
    """Return the answer in the last frame of a call that was answered."""
    assert isinstance(frame, Finished), frame
    return frame.response
