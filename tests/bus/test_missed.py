"""What passed while the bus was away is heard before anything else, on a real NATS server with JetStream."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_ENDS, encode
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import CallCancelled
from autellix.services import missed as module
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Listen
from autellix.services.journal import Journal
from autellix.services.missed import Missed
from autellix.services.nats_bus import NatsBus, connect
from autellix.services.runner import CoreRunner
from tests.bus.cuts import Cut
from tests.bus.durable_world import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from autellix.schemas.base import Message
    from autellix.services.core import Out, Reply

LISTENS = (Listen("autellix.events.call.cancelled", CALL_ENDS),)


class Hearer:
    """A core that notes which calls it hears of, and fails on `bad`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._heard = asyncio.Event()

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:
        """Note a call."""
        assert isinstance(message, CallCancelled)
        self.calls.append(message.call_id)
        self._heard.set()
        if message.call_id == "bad":
            raise RuntimeError("this one is not understood")
        return ()

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Do nothing."""
        return ()

    async def hears(self, call_id: str) -> None:
        """Return when it has heard of a call."""
        async with asyncio.timeout(10):
            while call_id not in self.calls:
                self._heard.clear()
                await self._heard.wait()


class Service:
    """A core on a bus that can be cut, and somebody else who speaks."""

    def __init__(self, own: NatsBus, other: NatsBus, core: Hearer, missed: Missed) -> None:
        self.core = core
        self.missed = missed
        self._own = own
        self._other = other

    async def say(self, *calls: str) -> None:
        """Let the other one tell of the ends of calls, and return when the server has them."""
        for call in calls:
            event = CallCancelled(
                call_id=CallId(call),
                program_id=ProgramId("p"),
                thread_id=ThreadId("main"),
                at_ms=1.0,
                arrival_at_ms=0.0,
                reason="",
            )
            await self._other.publish(subjects.event(event), encode(event))
        await self._other.flush()

    def cut(self) -> Cut:
        """Cut the own connection, until the context ends."""
        return Cut(self._own)


@asynccontextmanager
async def running(server: Server, *, keep: bool = True, tick_s: float = 60) -> AsyncIterator[Service]:
    """Have a service run, and events kept, if the server can."""
    own, other = await connect(server.url, name="test"), await connect(server.url, name="other")
    if keep:
        await Journal(other, "test", ProcessTableSettings()).open()
    core, missed = Hearer(), Missed(own, subjects.CALL_EVENTS)
    async with CoreRunner(own, core, LISTENS, tick_s=tick_s, missed=missed):
        yield Service(own, other, core, missed)
    for bus in (own, other):
        await bus.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterable[Server]:
    """Return a server that is not started."""
    server = Server(tmp_path)
    yield server
    server.kill()


async def test_what_was_missed_comes_first(server: Server) -> None:
    """Ends told while a service is away are heard before the next one, whichever was heard already."""
    server.start()
    async with running(server) as service:
        await service.say("a")
        await service.core.hears("a")
        await service.missed._mark()
        await service.say("b")
        await service.core.hears("b")
        async with service.cut():
            await service.say("bad", "c")
            unheard = list(service.core.calls)
        await service.say("d")
        await service.core.hears("d")

    assert unheard == ["a", "b"]
    assert service.core.calls[:5] == ["a", "b", "b", "bad", "c"]
    assert not service.missed.is_behind


async def test_what_was_missed_when_nothing_comes_after_it(server: Server) -> None:
    """It is heard with the next tick."""
    server.start()
    async with running(server, tick_s=0.05) as service:
        await service.missed._mark()
        async with service.cut():
            await service.say("a")
        await service.core.hears("a")


async def test_without_jetstream(server: Server) -> None:
    """Where nothing is kept a service goes on with what it hears, at once."""
    server.start(jetstream=False)
    async with running(server, keep=False) as service:
        async with service.cut():
            await service.say("a")
        await service.say("b")
        async with asyncio.timeout(2):
            await service.core.hears("b")

    assert service.core.calls == ["b"]


async def test_jetstream_that_does_not_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be had in time is said to be missing, and the service goes on."""
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    server.start()
    async with running(server) as service:
        await service.missed._mark()
        async with service.cut():
            pass
        await service._other.jetstream().delete_stream(subjects.EVENT_STREAM)
        with capture_logs() as logs:
            await service.say("a")
            await service.core.hears("a")

    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["not all was heard"]
    assert (service.missed.is_behind, service.missed.is_due) == (True, False)  # it will be tried again
