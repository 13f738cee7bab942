"""Displacement may cost a hundredth of the engine's time: never much more, and what is saved up is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.policy.budget import SAVED_MS, SHARE, RecomputeBudget


def test_closed_until_paid_back() -> None:
    """What was spent beyond the savings is paid back by a hundred times as much of the engine's time."""
    budget = RecomputeBudget()
    budget.step(1000.0, 1000.0 + SAVED_MS)
    opens_in_ms = budget.opens_in_ms
    budget.step(opens_in_ms - 1000.0, 0.0)

    assert opens_in_ms == 99_000.0
    assert budget.opens_in_ms == 1000.0


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1)), max_size=200))
def test_bounded_share(steps: list[tuple[float, float]]) -> None:
    """Who displaces only while the budget is open spends at most its share, the savings and what one step overdraws."""
    budget = RecomputeBudget()
    time_ms = spent_ms = largest_ms = 0.0
    for step_ms, share in steps:
        again_ms = step_ms * share if budget.opens_in_ms == 0 else 0.0
        budget.step(step_ms, again_ms)
        time_ms += step_ms
        spent_ms += again_ms
        largest_ms = max(largest_ms, again_ms)

    assert spent_ms <= SHARE * time_ms + SAVED_MS + largest_ms + 1e-6


@pytest.mark.parametrize("hours", [1, 100])
def test_savings_are_bounded(hours: int) -> None:
    """However long nothing was displaced, a burst of displacements is stopped by the same cost."""
    budget = RecomputeBudget()
    budget.step(hours * 3.6e6, 0.0)
    budget.step(0.0, SAVED_MS + 1.0)

    assert budget.opens_in_ms == 1.0 / SHARE
