"""The ladder: ranges that touch, each value in exactly one queue, quanta that are the widths."""

from itertools import accumulate
from math import inf, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.policy.ladder import Ladder

widths = st.lists(st.floats(0.5, 1e6), max_size=20)
services = st.floats(0, 1e9)


def ladder_of(steps: list[float]) -> Ladder:
    """Return the ladder whose queues have these widths, and one more that never ends."""
    return Ladder(tuple(accumulate(steps)))


@given(widths, services)
def test_each_value_is_in_the_queue_whose_range_holds_it(steps: list[float], service_ms: float) -> None:
    """A service is at or above its queue's lower bound and below its upper one."""
    ladder = ladder_of(steps)
    queue = ladder.queue_at(service_ms)
    bounds = (0.0, *ladder.bounds, inf)

    assert bounds[queue.number] == queue.lo_ms <= service_ms < bounds[queue.number + 1]


@given(widths, services)
def test_quantum_leads_to_the_next_queue(steps: list[float], service_ms: float) -> None:
    """Who enters at the lower bound and uses up the quantum of a queue has the service of the next one."""
    ladder = ladder_of(steps)
    queue = ladder.queue_at(service_ms)
    below = ladder.queue_below(queue.lo_ms)

    if queue.number == ladder.queues - 1:
        assert queue.quantum_ms == inf
        assert below == queue
    else:
        assert queue.lo_ms + queue.quantum_ms == pytest.approx(below.lo_ms)


@given(services, services)
def test_more_service_is_never_a_better_queue(one: float, other: float) -> None:
    """The order of queues is the order of services."""
    ladder = Ladder.doubling(first_quantum_ms=100, queues=12)
    low, high = sorted((one, other))

    assert ladder.queue_at(low) <= ladder.queue_at(high)


def test_bound_belongs_to_the_worse_queue() -> None:
    """The ranges are [lo, hi), as the paper's text says and not as its line 12 writes."""
    ladder = Ladder((100.0, 300.0))

    found = [ladder.queue_at(ms).number for ms in (nextafter(100.0, 0), 100.0, nextafter(300.0, 0), 300.0)]

    assert found == [0, 1, 1, 2]


def test_doubling() -> None:
    """Each bound is twice the one before it, and the last queue has no end."""
    ladder = Ladder.doubling(first_quantum_ms=100, queues=4)

    assert ladder.bounds == (100.0, 200.0, 400.0)
    assert ladder.queues == 4
    assert [ladder.queue(number).quantum_ms for number in range(4)] == [100.0, 100.0, 200.0, inf]


def test_one_queue() -> None:
    """A ladder of one queue holds everything for ever."""
    ladder = Ladder.doubling(first_quantum_ms=100, queues=1)

    assert (ladder.queues, ladder.queue_at(1e12)) == (1, (0, 0.0, inf))


def test_a_bound_of_an_earlier_ladder() -> None:
    """Who stands at a bound that this ladder does not have goes down from there, never up."""
    ladder = Ladder((100.0, 200.0))

    assert ladder.queue_below(150.0).lo_ms == 200.0
    assert ladder.queue_below(800.0) == (2, 800.0, inf)


@pytest.mark.parametrize("bounds", [(0.0,), (-1.0, 5.0), (5.0, 5.0), (7.0, 3.0), (float("nan"),), (1.0, inf)])
def test_bounds_that_do_not_ascend(bounds: tuple[float, ...]) -> None:
    """A ladder with an empty or backward range cannot be built."""
    with pytest.raises(ValueError, match="must be positive and ascend"):
        Ladder(bounds)
