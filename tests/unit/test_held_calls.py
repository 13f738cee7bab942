"""The order of held calls, and who is before whom, against a list that is sorted anew each time."""

from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.policy.call import QueuedCall
from autellix.engine.policy.held import HeldCalls
from autellix.engine.policy.program_cache import GatedCall
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

PROGRAMS = "abcd"
MOVES = st.lists(st.tuples(st.sampled_from(PROGRAMS), st.integers(0, 30), st.booleans()), max_size=40)


def gated(program: str, number: int) -> GatedCall:
    """Return a call of a program."""
    call = QueuedCall(CallId(f"c{number}"), ProgramId(program), ProgramFacts(), 0.0)
    return GatedCall(call, ThreadId("main"), [], 1, 0, 0.0)


@given(MOVES)
def test_held_calls_are_in_order_and_count_programs(moves: list[tuple[str, int, bool]]) -> None:
    """After any calls came, and some left or changed places: calls, programs and who is ahead are as they should be."""
    sut = HeldCalls(small=3)
    calls: list[GatedCall] = []
    for number, (program, standing, leaves) in enumerate(moves):
        if leaves and calls:
            left = calls.pop(standing % len(calls))
            sut.remove(left)
            assert left.standing is None
        if calls and standing % 3 == 0:
            moved = calls[standing % len(calls)]
            sut.remove(moved)
            sut.add(moved, (30 - standing, -number))
        calls.append(gated(program, number))
        sut.add(calls[-1], (standing, number))

    calls.sort(key=lambda each: each.standing)
    assert calls == list(sut)
    assert list(dict.fromkeys(each.call.program_id for each in calls)) == sut.programs
    for place, each in enumerate(calls):
        others = {before.call.program_id for before in calls[:place]} - {each.call.program_id}
        assert len(others) == sut.programs_ahead_of(each)


def test_the_last_call_of_a_program_takes_it_along() -> None:
    """A program without a held call is held no more."""
    sut = HeldCalls(small=3)
    only = gated("a", 0)
    sut.add(only, 1)
    sut.remove(only)

    assert ([], 0) == (sut.programs, len(sut))
