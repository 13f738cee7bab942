"""An engine worker alone on a bus, fed by hand: odd deliveries, orders at odd times, and an engine that dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from autellix.engine.executor import EngineGoneError, EngineInfo, Load, Notice, ProgramOver
from autellix.engine.policy.gittins import rank_table
from autellix.engine.simulated import SimulatedExecutor
from autellix.schemas import subjects
from autellix.schemas.codec import FRAMES, encode
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import (
    Call,
    CancelCalls,
    ControlEngine,
    EngineDown,
    EngineLoad,
    Failed,
    Finished,
    Priorities,
    ProgramEnded,
    ProgramExpired,
    ProgramFacts,
    ProgramStarted,
    RoutedCall,
)
from autellix.services.config import EngineWorkerSettings
from autellix.services.engine_worker.shell import EngineWorker

if TYPE_CHECKING:
    from autellix.services.bus import Bus
    from tests.bus.conftest import Connect, Inbox

STARTED = ProgramStarted(program_id=ProgramId("p"), at_ms=0.0)
CALLS = subjects.engine_calls(EngineId("e0"))
CONTROL = subjects.engine_control(EngineId("e0"))


class MortalExecutor(SimulatedExecutor):
    """A simulated engine that can die, and keeps what it is told."""

    dead = False

    def __init__(self, info: EngineInfo, *, step_ms: float) -> None:
        super().__init__(info, step_ms=step_ms)
        self.told: asyncio.Queue[Notice] = asyncio.Queue()

    def tell(self, notice: Notice) -> None:
        """Keep a notice."""
        self.told.put_nowait(notice)

    def load(self) -> Load:
        """Return how busy it is, while it lives."""
        if self.dead:
            raise EngineGoneError("it died")
        return super().load()


class Worker:
    """A worker on a bus, what the test sends to it, and everything it says."""

    def __init__(self, bus: Bus, heard: Inbox) -> None:
        self.bus = bus
        self.heard = heard
        self.executor = MortalExecutor(EngineInfo(("m",), "atlas", 4, 0, 100_000), step_ms=1.0)
        self.gone = asyncio.Event()
        self.incarnation = Incarnation("unknown")
        self._stack = AsyncExitStack()
        self.stop = self._stack.aclose

    async def start(self, own: Bus) -> None:
        """Start the worker on a client of its own."""
        await self.bus.subscribe(">", self.heard)
        await self.bus.flush()
        settings = EngineWorkerSettings(engine_id="e0", heartbeat_s=0.02, drain_s=0.2)
        await self._stack.enter_async_context(EngineWorker(own, self.executor, settings, on_gone=self.gone.set))
        self.incarnation = (await self.heard.event("engine.up")).incarnation

    async def send(self, *numbers: int, incarnation: str | None = None, **fields: Any) -> None:
        """Send calls to the worker."""
        for number in numbers:
            known: dict[str, Any] = {
                "call_id": CallId(f"c{number}"),
                "program_id": ProgramId("p"),
                "thread_id": ThreadId("main"),
                "api": "/v1/chat/completions",
                "model": "m",
                "body": b'{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"hi"}]}',
                "stream": False,
                "reply_to": "inbox.x",
                "arrival_at_ms": 0.0,
            }
            call = Call(**{**known, **fields})
            life = Incarnation(incarnation) if incarnation else self.incarnation
            routed = RoutedCall(
                call=call, program=ProgramFacts(), engine_id=EngineId("e0"), incarnation=life, reason=""
            )
            await self.bus.publish(CALLS, encode(routed))

    async def cancel(self, **names: str) -> None:
        """Send an order to cancel."""
        await self.bus.publish(subjects.CALL_CANCEL, encode(CancelCalls(**names)))  # type: ignore[arg-type]

    async def ends(self, count: int) -> list[tuple[str | None, int]]:
        """Return the next terminal frames: call and status."""
        found: list[tuple[str | None, int]] = []
        while len(found) < count:
            delivery = await self.heard.next()
            frame = FRAMES.decode(delivery.data) if delivery.subject == "inbox.x" else None
            if isinstance(frame, Finished | Failed):
                found.append((frame.call_id, frame.status if isinstance(frame, Failed) else 200))
        return found


@pytest.fixture
async def worker(connected: Connect, inbox: Inbox) -> AsyncIterator[Worker]:
    """Return a worker that is up."""
    running = Worker(await connected(), inbox)
    await running.start(await connected())
    yield running
    await running.stop()


LONG: dict[str, Any] = {"body": b'{"model":"m","max_tokens":50000,"messages":[{"role":"user","content":"hi"}]}'}


async def test_delivered_twice(worker: Worker) -> None:
    """A call that is delivered again while it runs, and after it ended, runs once."""
    await worker.send(1, 1, 1)
    first = await worker.ends(1)
    await worker.send(1)
    await worker.send(2)

    assert first == [("c1", 200)]
    assert await worker.ends(1) == [("c2", 200)]


async def test_cancel_first(worker: Worker) -> None:
    """An order to cancel that comes before its call ends the call when it comes."""
    await worker.cancel(call_id="c1")
    await worker.bus.flush()
    await worker.bus.publish(CONTROL, encode(ControlEngine(action="resume")), reply="inbox.y")
    while (await worker.heard.next()).subject != "inbox.y":
        pass
    await worker.send(1, 2)

    assert sorted(await worker.ends(2)) == [("c1", 499), ("c2", 200)]


async def test_cancel_in_the_same_moment(worker: Worker) -> None:
    """Calls and the orders to cancel them, sent in one breath in either order, all end cancelled, none runs on."""
    for number in range(50):
        if number % 2:
            await worker.cancel(call_id=f"c{number}")
        await worker.send(number, **LONG)
        if not number % 2:
            await worker.cancel(call_id=f"c{number}")
    ends = await worker.ends(50)

    assert {status for _, status in ends} == {499}
    assert len(dict(ends)) == 50
    assert worker.executor.load().running == 0


async def test_repeated_orders(worker: Worker) -> None:
    """A running call that is cancelled many times, by its own id and with its program, ends once."""
    await worker.send(1, **LONG)
    await worker.heard.event("call.started")
    for _ in range(5):
        await worker.cancel(call_id="c1")
        await worker.cancel(program_id="p")
    ends = await worker.ends(1)
    await worker.send(2)

    assert ends == [("c1", 499)]
    assert await worker.ends(1) == [("c2", 200)]


async def test_call_of_an_earlier_life(worker: Worker) -> None:
    """A call that was sent to an earlier life of the engine is not run: the balancer has ended it."""
    await worker.send(1, incarnation="earlier")
    await worker.send(2)

    assert await worker.ends(1) == [("c2", 200)]


async def test_bad_call(worker: Worker) -> None:
    """A bad request that got this far fails alone."""
    await worker.send(1, api="/sleep")
    await worker.send(2, body=b"no json")
    await worker.send(3)

    assert sorted(await worker.ends(3)) == [("c1", 404), ("c2", 500), ("c3", 200)]


async def test_answer_larger_than_the_bus_carries(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose answer cannot be carried gets an error, not silence."""
    tokens = worker.bus.max_payload // 3 + 1
    worker.executor.info = worker.executor.info._replace(max_model_len=tokens)
    worker.executor._step_ms = 0.0
    monkeypatch.setattr(worker.executor, "_step", _no_step)
    body = b'{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"hi"}]}' % tokens
    await worker.send(1, body=body)

    assert await worker.ends(1) == [("c1", 500)]


async def _no_step() -> None:
    """Take no time: the test is about the answer's size."""


async def test_heartbeat(worker: Worker) -> None:
    """A heartbeat says what the engine is and has; its steps prove that it moves on."""
    await worker.send(1, **LONG)
    await worker.heard.event("call.started")
    first, second = await worker.heard.event("engine.load"), await worker.heard.event("engine.load")

    assert isinstance(first, EngineLoad)
    assert (first.state, first.models, first.slots, first.calls, first.running) == ("ready", ("m",), 4, 1, 1)
    assert first.incarnation == worker.incarnation
    assert second.steps > first.steps


async def test_engine_is_told(worker: Worker) -> None:
    """What was learnt, and which programs are over, reaches the engine; other events do not concern it."""
    news = Priorities(kinds={"a": rank_table([5.0])})
    await worker.bus.publish(subjects.event(STARTED), encode(STARTED))
    await worker.bus.publish(subjects.PRIORITIES, encode(news))
    for event in (
        ProgramEnded(program_id=ProgramId("p"), at_ms=1.0),
        ProgramExpired(program_id=ProgramId("q"), at_ms=2.0),
    ):
        await worker.bus.publish(subjects.event(event), encode(event))
    async with asyncio.timeout(5):
        told = [await worker.executor.told.get() for _ in range(3)]

    assert news in told
    assert ["p", "q"] == sorted(notice.program_id for notice in told if isinstance(notice, ProgramOver))


async def test_engine_dies(worker: Worker) -> None:
    """A worker whose engine died refuses orders, tells its process, and still says goodbye when that stops it."""
    worker.executor.dead = True
    await worker.bus.publish(CONTROL, encode(ControlEngine(action="drain")), reply="inbox.y")
    while (delivery := await worker.heard.next()).subject != "inbox.y":
        pass
    failed = FRAMES.decode(delivery.data)
    async with asyncio.timeout(5):
        await worker.gone.wait()
    await worker.stop()
    down: EngineDown = await worker.heard.event("engine.down")

    assert isinstance(failed, Failed)
    assert failed.status == 503
    assert (down.incarnation, down.reason) == (worker.incarnation, "its engine died")


async def test_refused_while_it_leaves(worker: Worker) -> None:
    """A call that arrives while the worker drains is refused as safe to retry; its goodbye is the last word."""
    await worker.send(1, **LONG)
    await worker.heard.event("call.started")
    leaving = asyncio.create_task(worker.stop())
    await worker.heard.event("engine.load")
    await worker.send(2)
    ends = await worker.ends(2)
    await leaving
    await worker.heard.event("engine.down")

    assert sorted(ends) == [("c1", 503), ("c2", 503)]
    assert worker.heard.arrived() == []
