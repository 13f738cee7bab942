"""Whether others take a worker for alive: renewed by what the bus has, not by what was sent."""

import asyncio

import pytest

from autellix.services.engine_worker import alive as module
from autellix.services.engine_worker.alive import Alive


class Network:
    """What confirms, fails, or swallows, as a test says."""

    def __init__(self) -> None:
        self.through = asyncio.Event()
        self.fails = False
        self.asked = 0

    async def confirmed(self) -> None:
        """Return when it goes through."""
        self.asked += 1
        if self.fails:
            raise ConnectionError("lost")
        await self.through.wait()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, which tests set."""
    now = [100.0]
    monkeypatch.setattr(module, "now_s", lambda: now[0])
    return now


async def settle() -> None:
    """Let tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_confirmed_as_of_when_it_was_sent(clock: list[float]) -> None:
    """What was sent at 101 and arrived at 104 lasts until 106."""
    network = Network()
    alive = Alive(5.0, network.confirmed)
    clock[0] = 101.0
    alive.said()
    await settle()
    clock[0] = 104.0
    network.through.set()
    await settle()
    clock[0] = 105.9
    before = alive.has_lapsed
    clock[0] = 106.1

    assert [False, True] == [before, alive.has_lapsed]


async def test_swallowed(clock: list[float]) -> None:
    """Heartbeats that are sent and never arrive renew nothing, however many."""
    network = Network()
    alive = Alive(5.0, network.confirmed)
    for second in range(6):
        clock[0] = 100.5 + second
        alive.said()
        await settle()
    lapsed = alive.has_lapsed
    alive.close()

    assert lapsed
    assert 1 == network.asked


async def test_a_lost_connection_is_tried_again(clock: list[float]) -> None:
    """One that failed is followed by the next."""
    network = Network()
    alive = Alive(5.0, network.confirmed)
    network.fails = True
    alive.said()
    await settle()
    network.fails = False
    network.through.set()
    clock[0] = 104.0
    alive.said()
    await settle()
    clock[0] = 108.9

    assert not alive.has_lapsed


async def test_one_that_hangs_is_given_up() -> None:
    """A confirmation that never comes does not hold up those after it."""
    network = Network()
    alive = Alive(0.1, network.confirmed)
    alive.said()
    await settle()
    async with asyncio.timeout(5):
        while network.asked < 2:
            await asyncio.sleep(0.01)
            alive.said()
    network.through.set()
    await settle()

    assert not alive.has_lapsed
