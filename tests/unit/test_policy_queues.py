"""Algorithm 1 by example: entry, quantum, demotion, places, promotion, and what a call is charged."""

import pytest

from autellix.engine.policy import policy_named
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues, Rank
from autellix.schemas.ids import CallId
from autellix.schemas.messages import ProgramFacts

A, B, C = CallId("a"), CallId("b"), CallId("c")
NEW = ProgramFacts()
LADDER = Ladder((100.0, 300.0))
BETA = 4.0


def queues_of(policy: str = "plas") -> CallQueues:
    """Return the queues [0, 100), [100, 300) and [300, inf)."""
    return CallQueues(policy_named(policy), LADDER, beta=BETA)


def served(service_ms: float, waiting_ms: float = 0.0) -> ProgramFacts:
    """Return a program that has had this much."""
    return ProgramFacts(service_ms=service_ms, critical_path_ms=service_ms, waiting_ms=waiting_ms)


def ranks(queues: CallQueues, *call_ids: CallId) -> list[Rank]:
    """Return the ranks of these calls."""
    return [queues[call_id].rank for call_id in call_ids]


@pytest.mark.parametrize(("service_ms", "expected"), [(0.0, 0), (99.9, 0), (100.0, 1), (300.0, 2), (1e9, 2)])
def test_entry(service_ms: float, expected: int) -> None:
    """A call enters the queue whose range holds its program's service, with that queue's quantum."""
    call = queues_of().add(A, served(service_ms), 0.0)

    assert expected == call.queue
    assert LADDER.quantum_ms(expected) == call.quantum_left_ms


def test_order_within_a_queue() -> None:
    """Within a queue who came first runs first; a better queue goes before."""
    queues = queues_of()
    queues.add(A, served(100.0), 0.0)
    queues.add(B, served(200.0), 1.0)
    queues.add(C, NEW, 2.0)

    assert sorted([A, B, C], key=lambda call_id: queues[call_id].rank) == [C, A, B]


def test_quantum_used_up() -> None:
    """A call whose quantum is used up goes to the back of the next queue and starts its quantum anew."""
    queues = queues_of()
    queues.add(A, NEW, 0.0)
    queues.add(B, served(100.0), 0.0)
    queues.start(A, 0.0)

    assert [queues.charge(A, 60.0), queues.charge(A, 40.0)] == [False, True]
    assert queues[A].queue == 1
    assert queues[A].quantum_left_ms == 200.0
    assert queues[B].rank < queues[A].rank


def test_one_long_step_is_one_demotion() -> None:
    """A step longer than several quanta takes a call down by one queue, as the paper's loop does."""
    queues = queues_of()
    queues.add(A, NEW, 0.0)
    queues.start(A, 0.0)
    queues.charge(A, 5000.0)

    assert queues[A].queues == [0, 1]


def test_last_queue_has_no_end() -> None:
    """In the last queue nothing is used up."""
    queues = queues_of()
    queues.add(A, served(1000.0), 0.0)
    queues.start(A, 0.0)
    before = queues[A].rank

    assert not queues.charge(A, 1e9)
    assert before == queues[A].rank


def test_preempted_call_keeps_its_place() -> None:
    """Who is put out of the batch stands where it stood: before those of its queue that came later."""
    queues = queues_of()
    queues.add(A, NEW, 0.0)
    queues.add(B, NEW, 0.0)
    before = ranks(queues, A, B)
    queues.start(A, 5.0)
    queues.charge(A, 10.0)
    queues.preempt(A, 15.0)

    assert before == ranks(queues, A, B)
    assert queues[A].preemptions == 1


def test_waiting_again_is_not_a_preemption() -> None:
    """A call of which the running part ended waits for the rest, in its place, and was not put out."""
    queues = queues_of()
    queues.add(A, NEW, 0.0)
    queues.start(A, 5.0)
    queues.wait(A, 20.0)
    queues.wait(A, 30.0)
    ended = queues.remove(A, 50.0)

    assert ended.preemptions == 0
    assert ended.wait_ms == 35.0


def test_promotion_is_exactly_at_beta() -> None:
    """A call is promoted when waited over attained reaches beta (paper section 2.3), and not before."""
    queues = queues_of()
    queues.add(A, served(100.0, waiting_ms=50.0), 1000.0)

    assert queues.promote(1349.9) == []
    assert queues.promote(1350.0) == [queues[A]]
    assert queues[A].queue == 0


def test_attained_of_the_call_counts() -> None:
    """Both the program's service and the call's own put its promotion off."""
    queues = queues_of()
    queues.add(A, served(100.0), 0.0)
    queues.start(A, 0.0)
    queues.charge(A, 50.0)
    queues.preempt(A, 50.0)

    assert queues.promote(649.9) == []
    assert queues.promote(650.0) == [queues[A]]


def test_charge_while_it_waits() -> None:
    """The step that was under way when a call was put out still counts, and the call still starves in its time."""
    queues = queues_of()
    queues.add(A, NEW, 0.0)
    queues.start(A, 0.0)
    queues.preempt(A, 10.0)
    queues.charge(A, 100.0)

    assert queues[A].queue == 1
    assert queues.promote(409.9) == []
    assert queues.promote(410.0) == [queues[A]]


def test_a_later_charge_puts_promotion_off() -> None:
    """A call that is charged while it waits is promoted later, not never."""
    queues = queues_of()
    queues.add(A, served(100.0), 0.0)
    queues.start(A, 0.0)
    queues.preempt(A, 0.0)
    queues.charge(A, 10.0)

    assert queues.promote(400.0) == []
    assert queues.promote(440.0) == [queues[A]]


def test_the_rest_of_a_call_starves_too() -> None:
    """A call that waits again because its running part ended is promoted like any other."""
    queues = queues_of()
    queues.add(A, served(100.0), 0.0)
    queues.start(A, 0.0)
    queues.wait(A, 10.0)

    assert queues.promote(410.0) == [queues[A]]


def test_promotion_resets_the_window_only() -> None:
    """What a call is charged at its end is its whole life, promoted or not (the trap in the paper's line 29)."""
    queues = queues_of()
    queues.add(A, served(100.0), 0.0)
    queues.start(A, 10.0)
    queues.charge(A, 30.0)
    queues.preempt(A, 40.0)
    queues.promote(1000.0)
    call = queues[A]

    assert (call.window_service_ms, call.window_wait_ms) == (0.0, 0.0)
    assert (call.service_ms, call.wait_ms) == (30.0, 970.0)
    assert queues.remove(A, 1100.0).wait_ms == 1070.0


def test_running_calls_are_not_promoted() -> None:
    """Who runs does not starve."""
    queues = queues_of()
    queues.add(A, served(100.0), 0.0)
    queues.start(A, 1.0)

    assert queues.promote(1e9) == []


def test_fcfs_never_moves_a_call() -> None:
    """With one queue nothing is demoted or promoted, whatever it had."""
    queues = queues_of("fcfs")
    queues.add(A, served(1e9, waiting_ms=1e12), 0.0)
    queues.add(B, NEW, 0.0)
    queues.start(B, 0.0)

    assert not queues.charge(B, 1e9)
    assert queues.promote(1e12) == []
    assert queues[A].rank < queues[B].rank


def test_new_program_and_the_floor() -> None:
    """A program that attained nothing has a defined ratio: it is in the best queue and needs no promotion."""
    queues = queues_of()
    queues.add(A, served(0.0, waiting_ms=1e6), 0.0)

    assert queues.promote(1e9) == []
    assert queues[A].queue == 0


def test_same_call_twice() -> None:
    """A call that is in cannot enter again, and trying changes nothing."""
    queues = queues_of()
    before = queues.add(A, NEW, 0.0).rank

    with pytest.raises(ValueError, match="call a is already queued"):
        queues.add(A, served(500.0), 1.0)
    assert [before] == ranks(queues, A)
    assert len(queues) == 1
