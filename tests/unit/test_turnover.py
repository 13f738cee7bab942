"""How long programs are likely to be held, told from how fast others were let in."""

from math import e, inf

import pytest

from autellix.engine.policy.pressure import Turnover

SECOND = 1000.0


@pytest.fixture
def turnover() -> Turnover:
    """Return a gate's turnover after 100 tokens were let in at the start, before anything was measured."""
    known = Turnover()
    known.let_in(100, 0.0, memory_ms=inf)
    return known


def test_what_is_let_in_in_a_time_is_the_rate(turnover: Turnover) -> None:
    """Twice as many tokens as were let in within the time looked back on take twice that time."""
    assert pytest.approx(2 * SECOND) == turnover.wait_ms(200, 0.0, memory_ms=SECOND)


def test_what_is_long_ago_hardly_counts(turnover: Turnover) -> None:
    """A time later, e times as long is expected if nobody was let in meanwhile, and less if somebody was."""
    later = turnover.wait_ms(200, SECOND, memory_ms=SECOND)
    turnover.let_in(100, SECOND, memory_ms=SECOND)

    assert pytest.approx(2 * SECOND * e) == later
    assert turnover.wait_ms(200, SECOND, memory_ms=SECOND) < 2 * SECOND


def test_there_is_a_longest_wait(turnover: Turnover) -> None:
    """However long nobody was let in, no more than 100 times the time looked back on is expected."""
    assert 100 * SECOND == turnover.wait_ms(1, 1e6 * SECOND, memory_ms=SECOND)


def test_no_wait_without_reason(turnover: Turnover) -> None:
    """Nothing is expected where nobody wants room, nor while no time to look back on is known."""
    assert [0.0, 0.0] == [turnover.wait_ms(0, 1.0, memory_ms=SECOND), turnover.wait_ms(9, 1.0, memory_ms=inf)]
