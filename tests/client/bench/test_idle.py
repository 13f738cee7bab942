"""How fast an idle system is: found from its calls, and what a program would take on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.client.bench.idle import Idle, Sample, fit
from tests.client.bench.conftest import FORK, call, program_of

IDLE = Idle(first_token_s=0.01, computed_token_s=0.001, output_token_s=0.1, cached_share=0.5)


def sample(prompt: int, cached: float | None, first_s: float, *, known: int = 0, output: int = 1) -> Sample:
    """Return a call whose further tokens take 10 ms each."""
    return Sample(prompt, known, cached, output, first_s, first_s + 0.01 * (output - 1))


def test_line_through_first_tokens() -> None:
    """Height and slope are found over the computed tokens, whatever one call of five met."""
    samples = [sample(100, 0, 0.15), sample(200, 100, 0.15), sample(300, 0, 0.35), sample(50, 0, 0.1), sample(80, 0, 9)]
    idle = fit(samples)

    assert idle is not None
    assert pytest.approx((0.05, 0.001)) == (idle.first_token_s, idle.computed_token_s)


def test_pace_is_that_of_the_middle_call() -> None:
    """Time a token is the median over calls, leaving out those of one token."""
    samples = [sample(10, None, 0.1, output=n) for n in (1, 2, 5)]
    samples.append(Sample(10, 0, None, 3, 0.1, 9.1))
    idle = fit(samples)

    assert idle is not None
    assert 0.01 == pytest.approx(idle.output_token_s)


@pytest.mark.parametrize(
    ("cached", "share"), [((60, 20), 0.8), ((None, None), 0.0), ((None, 50), 1.0), ((100, 100), 1.0)]
)
def test_share_that_the_cache_finds(cached: tuple[float | None, float | None], share: float) -> None:
    """It is found over the calls that tell, is never above one, and none where no call tells."""
    idle = fit([sample(200, each, 0.1, known=50) for each in cached])

    assert idle is not None
    assert share == idle.cached_share


def test_nothing_is_known_of_nothing() -> None:
    """Without a call there is no speed, and one call gives a height without a slope."""
    one = fit([sample(10, 0, 0.3)])

    assert fit([]) is None
    assert Idle(first_token_s=0.3, computed_token_s=0.0, output_token_s=0.0) == one


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 10)), min_size=1, max_size=12))
def test_speeds_are_never_below_zero(points: list[tuple[int, float]]) -> None:
    """However odd the calls are, no time is negative."""
    idle = fit([sample(tokens, None, first_s) for tokens, first_s in points])

    assert idle is not None
    assert min(idle.first_token_s, idle.computed_token_s, idle.output_token_s) >= 0


def test_first_token_of_a_call() -> None:
    """What a cache could know costs nothing, as far as this system finds it."""
    (only,) = program_of(call(0, prompt_tokens=100, system_tokens=40)).calls

    assert 0.01 + 0.001 * (100 - 20) == pytest.approx(IDLE.wait_s(only))


def test_completion_is_the_longest_chain() -> None:
    """Branches run beside each other; interrupts count, up to the cap."""
    program = program_of(*FORK)
    first, left, right, last = (IDLE.wait_s(each) + 0.7 for each in program.calls)

    assert left + 0.01 > right
    assert first + 0.01 + left + last == pytest.approx(IDLE.completion_s(program, 30.0))
    assert first + max(left, right) + last == pytest.approx(IDLE.completion_s(program, 0.0))
