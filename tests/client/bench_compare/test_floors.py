"""What must come out of a suite: floors are kept or named, and those that nothing measures are refused at once."""

from typing import Any

import pytest

from autellix.client.bench import floors
from autellix.client.bench.settings import SettingsError
from tests.client.bench_compare.conftest import outcome_of, suite_of

LATENCIES = {(0.5, "ref", 1): 10.0, (1.0, "ref", 1): 40.0, (0.5, "new", 1): 10.0, (1.0, "new", 1): 20.0}


def floor(**fields: Any) -> dict[str, Any]:
    """Return a floor of `new` over `ref`."""
    return {"workload": "bfcl", "system": "new", "over": "ref", **fields}


def sentences(*asked: dict[str, Any], latencies: dict[tuple[float, str, int], float] = LATENCIES) -> list[str]:
    """Return which floors are missed."""
    suite = suite_of(floors=asked, factors=[1.5, 2.0])
    floors.check(suite)
    return [str(each) for each in floors.missed(suite, {"bfcl": outcome_of(suite, latencies)})]


def test_kept_floors_are_silent() -> None:
    """A ratio on the right side of its limit, the limit included, is no news."""
    assert [] == sentences(
        floor(ratio="latency at 1", most=0.5),
        floor(ratio="latency at 1", least=0.5),
        floor(ratio="rate at 2x", least=1.3),
    )


def test_missed_floors_are_named() -> None:
    """Each floor that is missed is a sentence with what was found."""
    found = sentences(floor(ratio="latency at 1", most=0.4), floor(ratio="latency at 0.5", least=1.1))

    assert [
        "bfcl: latency at 1 of new over ref must be at most 0.4; it is 0.5",
        "bfcl: latency at 0.5 of new over ref must be at least 1.1; it is 1",
    ] == found


def test_a_bound_proves_one_side_only() -> None:
    """That the true ratio is above 1.33 does not show that it is at most 2."""
    found = sentences(floor(ratio="rate at 2x", most=2.0))

    assert ["bfcl: rate at 2x of new over ref must be at most 2; it is > 1.33"] == found


def test_what_was_not_measured_misses_its_floor() -> None:
    """A floor is not kept because its runs failed."""
    found = sentences(floor(ratio="latency at 1", most=0.5), latencies={(1.0, "ref", 1): 40.0})

    assert ["bfcl: latency at 1 of new over ref must be at most 0.5; it is not measured"] == found


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"workload": "lats", "ratio": "latency at 1"}, "workload = 'lats' is none of bfcl"),
        ({"system": "old", "ratio": "latency at 1"}, "system = 'old' is none of ref, new"),
        ({"over": "old", "ratio": "latency at 1"}, "over = 'old' is none of ref, new"),
        ({"ratio": "latency at 2"}, "ratio = 'latency at 2' is none of latency at 0.5, "),
        ({"ratio": "rate at 3x"}, "ratio = 'rate at 3x' is none of latency at 0.5, "),
    ],
)
def test_floors_that_nothing_measures_are_refused(fields: dict[str, Any], named: str) -> None:
    """A misspelt floor is told of before anything runs, not after hours."""
    with pytest.raises(SettingsError, match=f"floors: {named}"):
        floors.check(suite_of(floors=[floor(least=1.0, **fields)]))
