"""The two buses, and the pipeline on either: what holds on one must hold on the other."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autellix.engine.executor import EngineInfo
from autellix.engine.simulated import SimulatedExecutor
from autellix.schemas import subjects
from autellix.schemas.codec import EVENTS, FRAMES, Decoder, encode
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import (
    EngineList,
    Event,
    Failed,
    Finished,
    Frame,
    ListEngines,
    ResultAnswer,
    SessionAnswer,
    SubmitCall,
    TableAnswer,
)
from autellix.services.bus import Bus, Delivery
from autellix.services.config import (
    EngineWorkerSettings,
    LoadBalancerSettings,
    ProcessTableSettings,
    SessionManagerSettings,
)
from autellix.services.engine_worker.shell import EngineWorker
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.load_balancer.listens import LISTENS as BALANCER_LISTENS
from autellix.services.memory_bus import MemoryBus, MemoryHub
from autellix.services.nats_bus import connect
from autellix.services.process_table.core import ProcessTable
from autellix.services.process_table.listens import LISTENS as TABLE_LISTENS
from autellix.services.runner import CoreRunner
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.listens import LISTENS as MANAGER_LISTENS
from tests.bus.durable_world import World

Connect = Callable[[], Awaitable[Bus]]
PATIENCE_S = 10.0
ANSWERS = Decoder[Any](SessionAnswer | TableAnswer | ResultAnswer)
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


class Inbox:
    """A handler that keeps what arrives."""

    def __init__(self) -> None:
        self.deliveries: asyncio.Queue[Delivery] = asyncio.Queue()

    async def __call__(self, delivery: Delivery) -> None:
        """Keep a delivery."""
        self.deliveries.put_nowait(delivery)

    async def next(self) -> Delivery:
        """Return the next delivery; give up when none comes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.deliveries.get()

    async def data(self, count: int) -> list[bytes]:
        """Return the data of the next few deliveries."""
        return [(await self.next()).data for _ in range(count)]

    def arrived(self) -> list[bytes]:
        """Return the data of what has come and was not asked for yet."""
        return [self.deliveries.get_nowait().data for _ in range(self.deliveries.qsize())]

    async def event(self, tag: str) -> Any:
        """Return the next event of this kind, passing over others."""
        while True:
            delivery = await self.next()
            if delivery.subject == f"autellix.events.{tag}":
                return EVENTS.decode(delivery.data)

    async def frames(self) -> list[Frame]:
        """Return the frames of a call, up to its last."""
        found: list[Frame] = []
        while not (found and isinstance(found[-1], Finished | Failed)):
            found.append(FRAMES.decode((await self.next()).data))
        return found


class Client:
    """Somebody outside: asks, submits, and hears every message on the bus in one order."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.heard = Inbox()

    async def listen(self) -> None:
        """Hear everything from now on."""
        await self.bus.subscribe(">", self.heard)
        await self.bus.flush()

    async def send(self, subject: str, data: bytes) -> Inbox:
        """Send a request as it is and return where it is answered."""
        name, inbox = self.bus.new_inbox(), Inbox()
        await self.bus.subscribe(name, inbox)
        await self.bus.flush()
        await self.bus.publish(subject, data, reply=name)
        return inbox

    async def ask(self, subject: str, message: msgspec.Struct) -> Any:
        """Return the answer to a request."""
        return ANSWERS.decode((await (await self.send(subject, encode(message))).next()).data)

    async def submit(self, body: dict[str, Any] | None = None, **fields: Any) -> Inbox:
        """Submit a call and return where its frames arrive; fields of its body may be given alone."""
        call = SubmitCall(body={**BODY, **(body or {})}, **fields)
        return await self.send(subjects.CALLS_SUBMIT, encode(call))

    def decoded(self, data: bytes) -> Any:
        """Return the frame in these bytes."""
        return FRAMES.decode(data)

    def events(self) -> list[Event]:
        """Return the events heard and not looked at yet."""
        deliveries = [self.heard.deliveries.get_nowait() for _ in range(self.heard.deliveries.qsize())]
        return [EVENTS.decode(each.data) for each in deliveries if each.subject.startswith("autellix.events.")]


class Pipeline:
    """The four services without their processes, each on a client of its own, and a client outside."""

    def __init__(self, connected: Connect) -> None:
        self._connected = connected
        self._stack = AsyncExitStack()
        self.worker_stack = AsyncExitStack()
        self.client: Client
        self.balancer: LoadBalancer

    async def start(self) -> None:
        """Start the three cores."""
        numbers = itertools.count(1)
        manager = SessionManager(SessionManagerSettings(), new_id=lambda: f"id{next(numbers)}", secret=b"key")
        balancer = self.balancer = LoadBalancer(LoadBalancerSettings(), random.Random(7))
        table = ProcessTable(ProcessTableSettings())
        for core, listens in ((manager, MANAGER_LISTENS), (table, TABLE_LISTENS), (balancer, BALANCER_LISTENS)):
            runner = CoreRunner(await self._connected(), core, listens, tick_s=0.05)
            await self._stack.enter_async_context(runner)
        self.client = Client(await self._connected())
        await self.client.listen()

    async def start_engine(
        self,
        engine_id: str = "e0",
        *,
        engine: type[SimulatedExecutor] = SimulatedExecutor,
        step_ms: float = 0.0,
        **settings: Any,
    ) -> EngineWorker:
        """Start a worker with a simulated engine and return it when the balancer knows it."""
        info = EngineInfo(("m",), "atlas", 4, 100_000, 100_000)
        wanted = EngineWorkerSettings(**{"engine_id": engine_id, "heartbeat_s": 0.05, "drain_s": 5.0, **settings})
        executor = engine(info, step_ms=step_ms)
        worker = EngineWorker(await self._connected(), executor, wanted, on_gone=lambda: None)
        await self.worker_stack.enter_async_context(worker)
        while EngineId(engine_id) not in await self.engines():
            pass
        return worker

    async def engines(self) -> dict[EngineId, int]:
        """Return the calls of each engine in rotation, as it says itself."""
        listed: EngineList = await self.client.ask(subjects.ENGINES_LIST, ListEngines())
        return {load.engine_id: load.calls for load in listed.engines}

    async def stop(self) -> None:
        """Stop the workers, then the cores."""
        await self.worker_stack.aclose()
        await self._stack.aclose()


@pytest.fixture(params=["memory", "nats"])
async def connected(request: pytest.FixtureRequest, nats_url: str) -> AsyncIterator[Connect]:
    """Return what makes one more client of one bus; all are closed in the end."""
    hub, clients = MemoryHub(), list[Bus]()

    async def make() -> Bus:
        client: Bus = MemoryBus(hub) if request.param == "memory" else await connect(nats_url, name="test")
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
async def bus(connected: Connect) -> Bus:
    """Return one client of a bus."""
    return await connected()


@pytest.fixture
async def other(connected: Connect) -> Bus:
    """Return another client of the same bus."""
    return await connected()


@pytest.fixture
def make_inbox() -> type[Inbox]:
    """Return what makes a handler that keeps what arrives."""
    return Inbox


@pytest.fixture
def inbox() -> Inbox:
    """Return a handler that keeps what arrives."""
    return Inbox()


@pytest.fixture
async def pipeline(connected: Connect) -> AsyncIterator[Pipeline]:
    """Return the running services, without an engine."""
    running = Pipeline(connected)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def client(pipeline: Pipeline) -> Client:
    """Return a client of a pipeline with one engine that answers at once."""
    await pipeline.start_engine()
    return pipeline.client


@pytest.fixture
async def durable_bare(tmp_path: Path) -> AsyncIterator[World]:
    """Return a server, and nothing else."""
    world = World(tmp_path, Pipeline)
    world.server.start()
    try:
        yield world
        await world.close()
    finally:
        world.server.kill()


@pytest.fixture
async def durable(durable_bare: World) -> World:
    """Return a server and a pipeline, without the service."""
    await durable_bare.start_pipeline()
    return durable_bare
