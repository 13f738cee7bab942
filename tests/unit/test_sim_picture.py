"""The drawing of one run, against its result."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from autellix.services.simulator.figures.plots import draw
from autellix.services.simulator.picture import picture
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario
from autellix.services.simulator.world import simulate


@pytest.fixture(scope="module")
def result() -> Result:
    """Return a short run on two engines."""
    return simulate(Scenario(programs=12, engines=2, max_context_tokens=3000, keep_loads=True))


def test_percentiles_are_those_of_the_summary(result: Result) -> None:
    """The curves of programs pass through the percentiles that the tables show."""
    latency, waited, *_ = picture(result).panels
    ms_per_token, wait_share = result.summary.ms_per_token, result.summary.wait_share
    assert ms_per_token is not None
    assert wait_share is not None
    (curve,), (shares,) = latency.lines, waited.lines

    assert (ms_per_token.p95, ms_per_token.p99) == (curve.y[curve.x.index(95)], curve.y[curve.x.index(99)])
    assert wait_share.p99 * 100 == shares.y[shares.x.index(99)]
    assert curve.y == sorted(value for value in curve.y if value is not None)


def test_engines_lie_between_the_least_and_the_most(result: Result) -> None:
    """Each interval with a heartbeat has one point, over the mean of the engines; the bars hold it."""
    *_, calls, memory = picture(result).panels
    running, waiting = calls.lines
    most = max(load.running for load in result.loads)

    assert running.x == waiting.x == sorted({*running.x})
    for line in (running, waiting, *memory.lines):
        points = zip(line.low, line.y, line.high, strict=True)
        assert all(
            low is not None and y is not None and high is not None and low <= y <= high for low, y, high in points
        )
    assert 0 < max(value for value in running.high if value is not None) <= most


def test_a_run_without_programs_or_heartbeats_is_drawn(result: Result, tmp_path: Path) -> None:
    """A run in which nothing finished and no engine reported gives empty axes."""
    empty = replace(result, programs=[], loads=[])
    draw(picture(empty), tmp_path / "empty.png")

    assert {0} == {len(line.y) for panel in picture(empty).panels for line in panel.lines}
    assert (tmp_path / "empty.png").exists()
