"""A service that has more to do than it can: what brings more work is refused, the rest is done."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import EndSession, Failed, SessionEnded, SessionStarted, StartSession
from autellix.services import runner as module
from autellix.services.core import Listen, Out, Reply, answer
from autellix.services.memory_bus import MemoryBus, MemoryHub
from autellix.services.runner import CoreRunner
from autellix.services.session_manager.listens import LISTENS as MANAGER_LISTENS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autellix.schemas.base import Message
    from autellix.services.bus import Delivery

LISTENS = (
    Listen("start", Decoder(StartSession), answered=True, brings_work=True),
    Listen("end", Decoder(EndSession), answered=True),
)
ANSWERS = Decoder[Any](SessionStarted | SessionEnded | Failed)
P = ProgramId("p")


class Slow:
    """A core that takes 60 ms for each message."""

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:
        """Take its time, and answer."""
        time.sleep(0.06)
        starts = isinstance(message, StartSession)
        return answer(reply, SessionStarted(program_id=P, ttl_ms=1.0) if starts else SessionEnded(program_id=P))

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Do nothing."""
        return ()


class Asker:
    """Somebody who asks, and hears the answers."""

    def __init__(self) -> None:
        self.bus = MemoryBus(MemoryHub())
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def __aenter__(self) -> Asker:
        """Listen."""
        await self.bus.subscribe("inbox", self._hear)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave."""
        await self.bus.close()

    async def _hear(self, delivery: Delivery) -> None:
        self._answers.put_nowait(delivery.data)

    async def ask(self, subject: str, message: Message) -> None:
        """Ask something."""
        await self.bus.publish(subject, encode(message), reply="inbox")

    async def answers(self, count: int) -> list[str]:
        """Return the kinds of the next answers; of failures the codes."""
        async with asyncio.timeout(5):
            found = [ANSWERS.decode(await self._answers.get()) for _ in range(count)]
        return [
            f"{each.status} {each.error.code}" if isinstance(each, Failed) else type(each).__name__ for each in found
        ]


async def test_more_than_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many that would begin something at once those that waited too long are refused; an end is always taken in."""
    monkeypatch.setattr(module, "BEHIND_S", 0.1)
    async with Asker() as asker, CoreRunner(asker.bus, Slow(), LISTENS, tick_s=60):
        for _ in range(6):
            await asker.ask("start", StartSession())
        await asker.ask("end", EndSession(program_id=P))
        answers = await asker.answers(7)
        await asker.ask("start", StartSession())
        later = await asker.answers(1)

    assert answers == ["SessionStarted"] * 2 + ["503 overloaded"] * 4 + ["SessionEnded"]
    assert later == ["SessionStarted"]


async def test_time_that_was_not_lost_to_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a service recovers nothing is done: who asked meanwhile is served."""
    monkeypatch.setattr(module, "BEHIND_S", 0.1)

    async with Asker() as asker:

        async def recover() -> None:
            await asker.ask("start", StartSession())
            await asyncio.sleep(0.2)

        async with CoreRunner(asker.bus, Slow(), LISTENS, tick_s=60, before=recover):
            answers = await asker.answers(1)

    assert answers == ["SessionStarted"]


def test_what_brings_work() -> None:
    """New programs and new calls do, of everybody and of each tenant; what ends or cancels them is always heard."""
    assert {listen.subject for listen in MANAGER_LISTENS if listen.brings_work} == {
        subjects.SESSIONS_START,
        subjects.CALLS_SUBMIT,
        "autellix.tenants.*.sessions.start",
        "autellix.tenants.*.calls.submit",
    }
