"""The ladder that follows from what ended: both ends right, on one grid, and not before enough is known."""

import random
from itertools import pairwise
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.policy.fitting import FIT_EVERY, KNOWN_MIN, LadderFitter, percentile
from autellix.engine.policy.ladder import Ladder
from autellix.schemas.ids import ProgramId

services = st.floats(0.01, 1e7)


def fitted(samples: list[tuple[str, float, float]], first_quantum_ms: float = 100.0) -> Ladder | None:
    """Return the last ladder fitted to (program, attained, service) of ended calls."""
    fitter = LadderFitter(first_quantum_ms=first_quantum_ms)
    ladders = [fitter.ended(ProgramId(name), attained, service) for name, attained, service in samples]
    return next((ladder for ladder in reversed(ladders) if ladder), None)


def test_nothing_before_enough_programs() -> None:
    """A few programs, however many calls they make, do not move the ladder."""
    few = [(f"p{number % (KNOWN_MIN - 1)}", 50.0, 5.0) for number in range(20 * FIT_EVERY)]

    assert fitted(few) is None
    assert fitted([*few, *((f"q{number}", 50.0, 5.0) for number in range(FIT_EVERY))]) is not None


@given(st.lists(st.tuples(services, services), min_size=200, max_size=400))
def test_both_ends(samples: list[tuple[float, float]]) -> None:
    """The last queue begins at or above the P99 of programs; the first bound is within a step of the P25 of calls."""
    seen = samples[: len(samples) // FIT_EVERY * FIT_EVERY]
    ladder = fitted([(f"p{number}", attained, service) for number, (attained, service) in enumerate(seen)])
    assert ladder is not None
    top = percentile([attained for attained, _ in seen], 0.99)
    low = percentile([service for _, service in seen], 0.25)
    first = ladder.bounds[0]

    assert ladder.bounds[-1] >= top
    assert first / 2**0.5 <= low * 1.0000001
    assert low <= first * 2**0.5 * 1.0000001
    assert ladder.queues == 2 + ceil(log2(max(top, first) / first))


@given(st.lists(st.tuples(services, services), min_size=200, max_size=200))
def test_one_grid(samples: list[tuple[float, float]]) -> None:
    """Every bound of every fitted ladder is the initial quantum times a power of two."""
    ladder = fitted([(f"p{number}", *sample) for number, sample in enumerate(samples)])
    assert ladder is not None

    assert all(log2(bound / 100.0).is_integer() for bound in ladder.bounds)
    assert all(upper == 2 * lower for lower, upper in pairwise(ladder.bounds))


def test_ladder_far_off_is_cured() -> None:
    """A ladder of milliseconds for programs of hours, or the other way round, is right after one fit."""
    chance = random.Random(1)
    slow = [(f"p{number}", chance.uniform(1e6, 1e7), chance.uniform(1e4, 1e5)) for number in range(FIT_EVERY)]
    quick = [(f"p{number}", chance.uniform(5.0, 50.0), chance.uniform(0.5, 5.0)) for number in range(FIT_EVERY)]
    high, low = fitted(slow), fitted(quick, first_quantum_ms=1e5)

    assert high is not None
    assert high.bounds[0] > 1e4 / 2
    assert high.bounds[-1] > 9e6
    assert low is not None
    assert low.bounds[0] < 5.0
    assert 25.0 < low.bounds[-1] < 200.0


def test_it_forgets() -> None:
    """What the engine did long ago no longer counts."""
    old = [(f"old{number}", 1e9, 1e6) for number in range(1000)]
    new = [(f"new{number}", 400.0, 100.0) for number in range(2048)]
    ladder = fitted(old + new)

    assert ladder == Ladder((100.0, 200.0, 400.0))


def test_calls_that_never_ran_say_nothing() -> None:
    """Calls that were cancelled while they waited do not pull the first quantum to nothing."""
    served = [(f"p{number}", 400.0, 100.0) for number in range(2 * FIT_EVERY)]
    cancelled = [(f"c{number}", 0.0, 0.0) for number in range(10 * FIT_EVERY)]

    assert fitted(served + cancelled) == fitted(served)


@pytest.mark.parametrize(("share", "expected"), [(0.25, 3.0), (0.5, 5.0), (0.99, 10.0), (0.0, 1.0), (1.0, 10.0)])
def test_percentile(share: float, expected: float) -> None:
    """A percentile is one of the values: the smallest that the share of them does not exceed."""
    assert expected == percentile([float(value) for value in range(10, 0, -1)], share)
