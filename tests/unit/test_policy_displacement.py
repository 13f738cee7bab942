"""Who gives way at the slot limit: strictly worse ones, for newcomers that fit, and never back and forth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.policy import policy_named
from autellix.engine.policy.displacement import displacements
from autellix.engine.policy.gittins import rank_table
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import Priorities, ProgramFacts

levels = st.lists(st.integers(0, 4), max_size=12).map(sorted)


def yielding(waiting: list[int], running: list[int], *, most: int = 99, free: int = 0, **fits: int) -> list[int]:
    """Return the levels of those that give way; `room` newcomers fit, the first `blocked` ones cannot run."""
    asked = iter(range(1000))

    def fit(_newcomer: int) -> bool | None:
        number = next(asked)
        return None if number < fits.get("blocked", 0) else number < fits.get("room", 1000)

    return displacements(
        waiting,
        reversed(running),
        outranks=lambda newcomer, victim: newcomer < victim,
        fits=fit,
        free_slots=free,
        most=most,
    )


@pytest.mark.parametrize(
    ("waiting", "running", "expected"),
    [
        ([0, 0], [0, 1, 2], [2, 1]),
        ([1, 1], [0, 1, 2], [2]),
        ([2], [0, 1, 2], []),
        ([0, 1], [2], [2]),
        ([], [1, 2], []),
        ([0], [], []),
    ],
)
def test_strictly_better_only(waiting: list[int], running: list[int], expected: list[int]) -> None:
    """The worst give way, each for a newcomer that is strictly better than it."""
    assert expected == yielding(waiting, running)


def test_nobody_leaves_for_who_does_not_fit() -> None:
    """The walk stops at the first newcomer that does not fit; a smaller one behind it is not tried (paper 2.2.4)."""
    assert yielding([0, 0, 0], [3, 3, 3], room=1) == [3]


def test_blocked_newcomers_are_passed_over() -> None:
    """Who cannot run in this step, whatever gives way, holds nobody up and takes no slot."""
    assert yielding([0, 0, 1], [1, 2], blocked=1) == [2]


def test_free_slots_first() -> None:
    """Free slots are taken before anybody is put out."""
    assert yielding([0, 0, 0], [1, 2, 3], free=2) == [3]


def test_bounded_in_one_step() -> None:
    """At most so many give way in one step."""
    assert yielding([0] * 5, [1] * 5, most=2) == [1, 1]


@given(levels, levels, st.integers(0, 5), st.integers(0, 3))
def test_every_exchange_is_a_gain(waiting: list[int], running: list[int], most: int, free: int) -> None:
    """After the exchange nobody in the batch is worse than before, and another look puts nobody out again."""
    victims = yielding(waiting, running, most=most, free=free)
    came = waiting[: len(victims) + free] if victims else waiting[:free]
    batch = sorted([*running[: len(running) - len(victims)], *came])
    left = sorted([*waiting[len(came) :], *victims])

    assert len(victims) <= most
    assert all(new < old for new, old in zip(came[free:], victims, strict=bool(victims)))
    if len(victims) < most:
        assert yielding(left, batch) == []


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 30)), min_size=2, max_size=12),
    st.integers(1, 4),
    st.sampled_from(["plas", "mlfq", "atlas", "fcfs", "gittins"]),
    st.lists(st.floats(20, 1000), min_size=1, max_size=40),
)
def test_no_swapping_back_and_forth(
    calls: list[tuple[int, int]], slots: int, policy: str, ended_ms: list[float]
) -> None:
    """Of two calls one displaces the other again only after it, or the other, has changed queues in between."""
    queues = CallQueues(policy_named(policy), Ladder((50.0, 100.0, 200.0)), beta=4.0)
    queues.learn(Priorities(pooled=rank_table(ended_ms)))
    left = {}
    for number, (service_ms, steps) in enumerate(calls):
        facts = ProgramFacts(service_ms=service_ms, critical_path_ms=service_ms)
        left[queues.add(CallId(f"c{number}"), ProgramId(f"p{number}"), facts, 0.0).call_id] = steps
    batch: list[CallId] = []
    moves_at_exchange: dict[frozenset[CallId], int] = {}
    now_ms = 0.0
    while left:
        queues.promote(now_ms)
        batch.sort(key=lambda call_id: queues[call_id].rank)
        waiting = sorted(left.keys() - set(batch), key=lambda call_id: queues[call_id].rank)
        victims = displacements(
            waiting,
            reversed(batch),
            outranks=lambda newcomer, victim: queues[newcomer].outranks(queues[victim]),
            fits=lambda _: True,
            free_slots=slots - len(batch),
            most=2,
        )
        for victim in victims:
            batch.remove(victim)
            queues.preempt(victim, now_ms)
            queues.leave(victim)
        came = waiting[: slots - len(batch)]
        for call_id in came:
            queues.start(call_id, now_ms)
            queues.join(call_id)
            for victim in victims:
                pair = frozenset((call_id, victim))
                moves = len(queues[call_id].queues) + len(queues[victim].queues)
                assert moves > moves_at_exchange.get(pair, -1)
                moves_at_exchange[pair] = moves
        batch += came
        now_ms += 20.0
        queues.charge(20.0)
        for call_id in list(batch):
            left[call_id] -= 1
            if not left[call_id]:
                batch.remove(call_id)
                queues.remove(call_id, now_ms)
                del left[call_id]
