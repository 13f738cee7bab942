"""Rates at a latency and their ratios, by examples computed by hand and by what must hold for any curve."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.client.bench.ratios import Estimate, Point, Ratio, Sign, highest_rate, over_seeds, quotient

RISING = [Point(1.0, 10.0), Point(2.0, 20.0), Point(4.0, 80.0)]
LATENCIES = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("latency_ms", "expected"),
    [
        (10.0 * sqrt(2), Estimate(1.5)),  # half way between 10 and 20, as logarithms go
        (20.0, Estimate(2.0)),
        (40.0, Estimate(3.0)),  # half way between 20 and 80
        (80.0, Estimate(4.0, ">")),
        (1000.0, Estimate(4.0, ">")),
        (9.0, Estimate(1.0, "<")),
    ],
)
def test_rate_of_a_rising_curve(latency_ms: float, expected: Estimate) -> None:
    """Between two loads the logarithm of the latency is a straight line; beyond them there is a bound only."""
    found = highest_rate(RISING, latency_ms)

    assert pytest.approx(expected.value) == found.value
    assert expected.sign == found.sign


def test_order_of_points_is_of_no_matter() -> None:
    """Points may come in any order."""
    assert highest_rate(RISING, 30.0) == highest_rate(RISING[::-1], 30.0)


def test_first_crossing_counts() -> None:
    """A curve that comes down again after it had crossed the bound does not hold it beyond the first crossing."""
    curve = [Point(1.0, 10.0), Point(2.0, 40.0), Point(3.0, 10.0), Point(4.0, 40.0)]

    found = highest_rate(curve, 20.0)

    assert pytest.approx(1.5) == found.value
    assert "=" == found.sign


def test_dip_below_the_bound_is_no_crossing() -> None:
    """A curve that falls and rises, always below the bound, never crosses it."""
    assert Estimate(3.0, ">") == highest_rate([Point(1.0, 30.0), Point(2.0, 10.0), Point(3.0, 30.0)], 31.0)


def test_single_point_is_a_bound() -> None:
    """One load tells on which side of it the rate lies, and no more."""
    point = Point(2.0, 10.0)

    assert Estimate(2.0, ">") == highest_rate([point], 10.0)
    assert Estimate(2.0, "<") == highest_rate([point], 9.9)


@given(LATENCIES, st.floats(1.0, 1e4), st.floats(1.0, 1e4))
def test_a_higher_bound_is_reached_no_earlier(latencies: list[float], one: float, other: float) -> None:
    """Whatever the curve, who may be slower reaches at least the same rate, and it lies among the loads."""
    curve = [Point(float(number), latency) for number, latency in enumerate(latencies, start=1)]

    low, high = (highest_rate(curve, bound) for bound in sorted((one, other)))

    assert 1.0 <= low.value <= high.value <= len(latencies)


@pytest.mark.parametrize(
    ("over", "under", "sign"),
    [
        ("=", "=", "="),
        (">", "=", ">"),
        ("<", "=", "<"),
        ("=", ">", "<"),
        ("=", "<", ">"),
        (">", "<", ">"),
        ("<", ">", "<"),
        (">", ">", "?"),
        ("<", "<", "?"),
    ],
)
def test_quotient_of_bounds(over: Sign, under: Sign, sign: Sign) -> None:
    """What is divided by too small a number is too large; two bounds that pull apart say nothing."""
    assert Estimate(1.5, sign) == quotient(Estimate(3.0, over), Estimate(2.0, under))


@pytest.mark.parametrize(
    ("signs", "expected", "text"),
    [
        ("==", Ratio(2.0, 0.5, "="), "2 ±0.5"),
        ("=>", Ratio(2.0, 0.5, ">"), "> 2 ±0.5"),
        ("<<", Ratio(2.0, 0.5, "<"), "< 2 ±0.5"),
        ("<>", Ratio(2.0, 0.5, "?"), "beyond range"),
        ("=?", Ratio(2.0, 0.5, "?"), "beyond range"),
    ],
)
def test_seeds_together(signs: str, expected: Ratio, text: str) -> None:
    """Several seeds make a mean and half the range: a bound if one of them is, nothing if two contradict each other."""
    values = zip((1.5, 2.5), signs, strict=True)

    found = over_seeds([Estimate(value, sign) for value, sign in values])  # type: ignore[arg-type]

    assert expected == found
    assert text == str(found)


def test_no_seed_is_no_ratio() -> None:
    """Without any run there is nothing to tell."""
    assert None is over_seeds([])
