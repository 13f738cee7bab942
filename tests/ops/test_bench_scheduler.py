"""What `make bench-scheduler` claims of itself; importing vLLM takes seconds, so it is imported when the tests run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autellix.engine.vllm_adapter.reports import ReportReceiver

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the benchmark; what it does to the clock of our scheduler is undone."""
    import scheduler

    from autellix.engine.vllm_adapter import scheduler as ours

    monkeypatch.setattr(ours, "now_ms", ours.now_ms)
    return scheduler


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[ReportReceiver]:
    """Return the engine worker's end of the reports."""
    receiver = ReportReceiver(tmp_path / "reports")
    yield receiver
    receiver.close()


@pytest.mark.parametrize("whose", ["stock", "atlas", "auto"])
def test_a_turn_has_an_arrival_and_an_end(
    bench: ModuleType, reports: ReportReceiver, tmp_path: Path, whose: str
) -> None:
    """In either scheduler the batch is full, one call ends and one arrives every turn, and none is displaced."""
    policy = "atlas" if whose == "stock" else whose
    config = bench.stock_config() if whose == "stock" else bench.our_config(policy, reports, tmp_path / "notices")
    world = bench.World(config, bench.Case(policy, 8), reports)
    known = set(world.scheduler.requests)

    for turn in (1, 2, 3):
        world.turn(60.0, bench.Stopwatch())
        there = set(world.scheduler.requests)

        assert (turn, turn) == (len(there - known), len(known - there))
        assert len(there) - 8 == bench.SLOTS
    assert 0 == world.displaced


def test_what_vllm_takes_is_told_apart(bench: ModuleType, reports: ReportReceiver, tmp_path: Path) -> None:
    """A stock scheduler has next to no time left outside vLLM's own methods, ours has some."""
    case, vllm = bench.Case("atlas", 8), bench.Stopwatch()
    configs = bench.stock_config(), bench.our_config("atlas", reports, tmp_path / "notices")
    worlds = [bench.World(config, case, reports) for config in configs]

    with pytest.MonkeyPatch.context() as patch:
        for method in ("schedule", "update_from_output"):
            patch.setattr(bench.Scheduler, method, getattr(bench.Scheduler, method))
            vllm.watch(bench.Scheduler, method)
        stock, ours = (world.turn(60.0, vllm) for world in worlds)

    assert 0 < min(stock.outside_us)
    assert sum(stock.outside_us) < sum(ours.outside_us) < sum(ours.whole_us)
