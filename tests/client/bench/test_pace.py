"""A run says how fast the machine was while it was made."""

import asyncio

import pytest

from autellix.client.bench import pace
from autellix.client.bench.pace import Pace


async def test_pace_is_the_mean_of_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample at the start and one each so often; none once it is over."""
    costs = [6.0, 2.0, 1.0]
    taken = asyncio.Event()

    def work_ms() -> float:
        if len(costs) == 1:
            taken.set()
        return costs.pop()

    monkeypatch.setattr(pace, "EVERY_S", 0.001)
    monkeypatch.setattr(pace, "_work_ms", work_ms)
    async with Pace() as sut:
        assert 1.0 == sut.ms
        await taken.wait()
    await asyncio.sleep(0.01)

    assert 3.0 == sut.ms


async def test_work_costs_something() -> None:
    """The fixed piece of work takes time, and nothing is known before there was one."""
    assert Pace().ms is None
    async with Pace() as sut:
        pass

    assert (sut.ms or 0) > 0
