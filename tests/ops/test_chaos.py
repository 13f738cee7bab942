"""A short form of `make chaos`: whatever dies, nothing is lost and nothing happens twice."""

import asyncio

import chaos
import pytest
from rich.console import Console

KINDS = tuple(kind for kind in chaos.KINDS if kind != "swallow")
"""What a network swallows and delivers late may be a second answer: see ops/bench/results/chaos.md."""
pytestmark = pytest.mark.timeout(300)


def test_nothing_is_lost() -> None:
    """Each kind of fault once, under load: every call has one answer, every program is known and none is stuck."""
    report = asyncio.run(
        chaos.run(chaos.simulated(), faults=len(KINDS), agents=6, seed=7, say=Console(quiet=True), kinds=KINDS)
    )

    assert set(report.faults) == set(KINDS)
    assert report.wrong == []
    assert (report.lost, report.cut, report.given_up) == (0, 0, 0)
    assert report.answered > 100
