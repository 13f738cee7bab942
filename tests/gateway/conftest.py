"""A gateway under test: real HTTP in front, and behind it a pipeline that the test plays itself."""

import asyncio
import socket
import subprocess
import sysconfig
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import (
    Accepted,
    CallFinished,
    CancelCalls,
    Chunk,
    EngineLoad,
    Failed,
    Finished,
    Placed,
    SubmitCall,
)
from autellix.services.bus import Bus, Delivery
from autellix.services.config import GatewaySettings
from autellix.services.gateway.app import gateway
from autellix.services.memory_bus import MemoryBus, MemoryHub
from autellix.services.nats_bus import connect

SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
CALL = CallId("call-1")
PROGRAM = ProgramId("program-1")
PLACED = Placed(engine_id=EngineId("e0"), reason="home engine", wait_ms=12.5)


@dataclass
class PlayedCall:
    """One call as it reached the pipeline, and the frames that the test answers with."""

    bus: Bus
    request: SubmitCall
    inbox: str

    async def send(self, data: bytes) -> None:
        """Send anything to the gateway's inbox."""
        await self.bus.publish(self.inbox, data)

    async def accept(self) -> None:
        """Take the call in."""
        await self.send(encode(Accepted(call_id=CALL, program_id=PROGRAM, thread_id=ThreadId("main"))))

    async def chunk(self, seq: int, *data: Any) -> None:
        """Answer with a part of a stream."""
        placed = PLACED if seq == 1 else None
        await self.send(encode(Chunk(call_id=CALL, seq=seq, data=list(data), placed=placed)))

    async def finish(self, seq: int, response: Any = None) -> None:
        """Answer with the last frame of a call that was answered."""
        end = CallFinished(
            call_id=CALL,
            program_id=PROGRAM,
            thread_id=ThreadId("main"),
            at_ms=2.0,
            arrival_at_ms=1.0,
            engine_id=EngineId("e0"),
            wait_ms=12.5,
        )
        placed = PLACED if seq == 1 else None
        await self.send(encode(Finished(call_id=CALL, seq=seq, call=end, response=response, placed=placed)))

    async def fail(self, status: int, *, retry_after_s: float | None = None) -> None:
        """Answer with the last frame of a call that failed."""
        error = ErrorBody(message="it broke", type="server_error", code="broken")
        await self.send(encode(Failed(status=status, error=error, call_id=CALL, retry_after_s=retry_after_s)))


@dataclass
class Front:
    """A running gateway: an HTTP client of it, and the calls and cancellations that it publishes."""

    bus: Bus
    http: httpx.AsyncClient
    port: int
    calls: asyncio.Queue[PlayedCall] = field(default_factory=asyncio.Queue)
    cancelled: asyncio.Queue[CancelCalls] = field(default_factory=asyncio.Queue)

    async def listen(self) -> None:
        """Take the place of the session manager."""
        submits, cancels = Decoder[SubmitCall](SubmitCall), Decoder[CancelCalls](CancelCalls)

        async def on_submit(delivery: Delivery) -> None:
            await self.calls.put(PlayedCall(self.bus, submits.decode(delivery.data), delivery.reply))

        async def on_cancel(delivery: Delivery) -> None:
            assert delivery.reply, "a cancellation without a reply subject is dropped"
            await self.cancelled.put(cancels.decode(delivery.data))

        await self.bus.subscribe(subjects.CALLS_SUBMIT, on_submit)
        await self.bus.subscribe(subjects.CALLS_CANCEL, on_cancel)
        await self.bus.flush()

    async def ask(
        self, body: dict[str, Any] | None = None, *, stream: bool = False, headers: dict[str, str] | None = None
    ) -> tuple[asyncio.Task[httpx.Response], PlayedCall]:
        """Post a chat request; return the answer to come (`stream`: its head only) and the accepted call."""
        request = self.http.build_request("POST", "/v1/chat/completions", json=body or BODY, headers=headers)
        asking = asyncio.create_task(self.http.send(request, stream=stream))
        call = await self.calls.get()
        await call.accept()
        return asking, call

    async def heartbeat(self, engine_id: str, *models: str, state: str = "ready") -> None:
        """Let an engine report."""
        load = EngineLoad(
            engine_id=EngineId(engine_id),
            incarnation=Incarnation("i1"),
            models=models,
            policy="atlas",
            state=state,
            slots=4,
            calls=0,
            running=0,
            waiting=0,
            kv_usage=0.0,
            steps=1,
            at_ms=0.0,
        )
        await self.bus.publish(subjects.event(load), encode(load))


@asynccontextmanager
async def buses(kind: str, nats_url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    """Yield two clients of one bus of the given kind."""
    if kind == "memory":
        hub = MemoryHub()
        pair: tuple[Bus, Bus] = (MemoryBus(hub), MemoryBus(hub))
    else:
        pair = (await connect(nats_url, name="gateway"), await connect(nats_url, name="test"))
    try:
        yield pair
    finally:
        for bus in pair:
            await bus.close()


@asynccontextmanager
async def fronted(bus: Bus, other: Bus, settings: GatewaySettings) -> AsyncIterator[Front]:
    """Run a gateway on `bus` and play the pipeline on `other`."""
    async with httpx.AsyncClient(timeout=10) as http, gateway(bus, settings, silence_s=5) as server:
        http.base_url = f"http://127.0.0.1:{server.port}"
        front = Front(other, http, server.port)
        await front.listen()
        yield front


@pytest.fixture(params=["memory", "nats"])
async def front(request: pytest.FixtureRequest, nats_url: str) -> AsyncIterator[Front]:
    """Yield a patient gateway, once on each bus."""
    settings = GatewaySettings(port=0, drain_s=1)
    async with buses(request.param, nats_url) as pair, fronted(*pair, settings) as running:
        yield running


HASTY = GatewaySettings(port=0, heartbeat_s=0.05, first_frame_s=0.2, body_bytes_max=200_000, drain_s=0.2)


@pytest.fixture
async def hasty(nats_url: str) -> AsyncIterator[Front]:
    """Yield a gateway whose patience is short."""
    async with buses("memory", nats_url) as pair, fronted(*pair, HASTY) as running:
        yield running


@pytest.fixture
async def stoppable(nats_url: str) -> AsyncIterator[tuple[Front, AsyncExitStack]]:
    """Yield a gateway of short patience, and what to close to stop it."""
    async with buses("memory", nats_url) as pair, AsyncExitStack() as stack:
        yield await stack.enter_async_context(fronted(*pair, HASTY)), stack


class OwnServer:
    """A nats-server that a test may kill and start again on the same port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        """Start it; clients connect as soon as they can."""
        self._process = subprocess.Popen([SERVER, "-a", "127.0.0.1", "-p", str(self.port)], stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill it, and return when it is gone."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
async def fragile() -> AsyncIterator[tuple[Front, OwnServer]]:
    """Yield a gateway on a server of its own."""
    server = OwnServer()
    url = f"nats://127.0.0.1:{server.port}"
    try:
        async with buses("nats", url) as pair, fronted(*pair, GatewaySettings(port=0)) as running:
            yield running, server
    finally:
        server.kill()
