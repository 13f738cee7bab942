"""Algorithm 1 by example: entry, quantum, demotion, places, promotion, and what a call is charged."""

from math import inf

import pytest

from autellix.engine.policy import policy_named
from autellix.engine.policy.call import Rank
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts

A, B, C = CallId("a"), CallId("b"), CallId("c")
P = ProgramId("p")
NEW = ProgramFacts()
LADDER = Ladder((100.0, 300.0))
LO = (0.0, 100.0, 300.0)
BETA = 4.0


def queues_of(policy: str = "plas") -> CallQueues:
    """Return the queues [0, 100), [100, 300) and [300, inf)."""
    return CallQueues(policy_named(policy), LADDER, beta=BETA)


def served(service_ms: float, waiting_ms: float = 0.0) -> ProgramFacts:
    """Return a program that has had this much."""
    return ProgramFacts(service_ms=service_ms, critical_path_ms=service_ms, waiting_ms=waiting_ms)


def run(queues: CallQueues, call_id: CallId, now_ms: float = 0.0) -> None:
    """Let a call run and be part of the steps from now on."""
    queues.start(call_id, now_ms)
    queues.join(call_id)


def put_out(queues: CallQueues, call_id: CallId, now_ms: float) -> None:
    """Let a running call wait, and be part of no step from now on."""
    queues.preempt(call_id, now_ms)
    queues.leave(call_id)


def ranks(queues: CallQueues, *call_ids: CallId) -> list[Rank]:
    """Return the ranks of these calls."""
    return [queues[call_id].rank for call_id in call_ids]


@pytest.mark.parametrize(("service_ms", "expected"), [(0.0, 0), (99.9, 0), (100.0, 1), (300.0, 2), (1e9, 2)])
def test_entry(service_ms: float, expected: int) -> None:
    """A call enters the queue whose range holds its program's service, with that queue's quantum."""
    call = queues_of().add(A, P, served(service_ms), 0.0)

    assert LADDER.queue(expected).lo_ms == call.lo_ms
    assert LADDER.queue(expected).quantum_ms == call.due_ms
    assert [expected] == call.queues


def test_order_within_a_queue() -> None:
    """Within a queue who came first runs first; a better queue goes before."""
    queues = queues_of()
    queues.add(A, P, served(100.0), 0.0)
    queues.add(B, P, served(200.0), 1.0)
    queues.add(C, P, NEW, 2.0)

    assert sorted([A, B, C], key=lambda call_id: queues[call_id].rank) == [C, A, B]


def test_quantum_used_up() -> None:
    """A call whose quantum is used up goes to the back of the next queue and starts its quantum anew."""
    queues = queues_of()
    queues.add(A, P, NEW, 0.0)
    queues.add(B, P, served(100.0), 0.0)
    run(queues, A)

    assert [queues.charge(60.0), queues.charge(40.0)] == [[], [queues[A]]]
    assert queues[A].lo_ms == 100.0
    assert queues.next_demotion_ms == 200.0
    assert queues[B].rank < queues[A].rank


def test_one_long_step_is_one_demotion() -> None:
    """A step longer than several quanta takes a call down by one queue, as the paper's loop does."""
    queues = queues_of()
    queues.add(A, P, NEW, 0.0)
    run(queues, A, 0.0)
    queues.charge(5000.0)

    assert queues[A].queues == [0, 1]


def test_last_queue_has_no_end() -> None:
    """In the last queue nothing is used up."""
    queues = queues_of()
    queues.add(A, P, served(1000.0), 0.0)
    run(queues, A, 0.0)
    before = queues[A].rank

    assert not queues.charge(1e9)
    assert before == queues[A].rank


def test_preempted_call_keeps_its_place() -> None:
    """Who is put out of the batch stands where it stood: before those of its queue that came later."""
    queues = queues_of()
    queues.add(A, P, NEW, 0.0)
    queues.add(B, P, NEW, 0.0)
    before = ranks(queues, A, B)
    run(queues, A, 5.0)
    queues.charge(10.0)
    put_out(queues, A, 15.0)

    assert before == ranks(queues, A, B)
    assert queues[A].preemptions == 1


def test_waiting_again_is_not_a_preemption() -> None:
    """A call of which the running part ended waits for the rest, in its place, and was not put out."""
    queues = queues_of()
    queues.add(A, P, NEW, 0.0)
    run(queues, A, 5.0)
    queues.wait(A, 20.0)
    queues.wait(A, 30.0)
    ended = queues.remove(A, 50.0)

    assert ended.preemptions == 0
    assert ended.wait_ms == 35.0


def test_promotion_is_exactly_at_beta() -> None:
    """A call is promoted when waited over attained reaches beta (paper section 2.3), and not before."""
    queues = queues_of()
    queues.add(A, P, served(100.0, waiting_ms=50.0), 1000.0)

    assert queues.promote(1349.9) == []
    assert queues.promote(1350.0) == [queues[A]]
    assert queues[A].lo_ms == 0.0


def test_attained_of_the_call_counts() -> None:
    """Both the program's service and the call's own put its promotion off."""
    queues = queues_of()
    queues.add(A, P, served(100.0), 0.0)
    run(queues, A, 0.0)
    queues.charge(50.0)
    put_out(queues, A, 50.0)

    assert queues.promote(649.9) == []
    assert queues.promote(650.0) == [queues[A]]


def test_charge_while_it_waits() -> None:
    """The step that was under way when a call was put out still counts, and the call still starves in its time."""
    queues = queues_of()
    queues.add(A, P, NEW, 0.0)
    run(queues, A, 0.0)
    queues.preempt(A, 10.0)
    queues.charge(100.0)
    queues.leave(A)
    queues.charge(1000.0)

    assert queues[A].lo_ms == LO[1]
    assert queues[A].service_ms == 100.0
    assert queues.promote(409.9) == []
    assert queues.promote(410.0) == [queues[A]]


def test_a_later_charge_puts_promotion_off() -> None:
    """A call that is charged while it waits is promoted later, not never."""
    queues = queues_of()
    queues.add(A, P, served(100.0), 0.0)
    run(queues, A, 0.0)
    queues.preempt(A, 0.0)
    queues.charge(10.0)

    assert queues.promote(400.0) == []
    assert queues.promote(440.0) == [queues[A]]


def test_the_rest_of_a_call_starves_too() -> None:
    """A call that waits again because its running part ended is promoted like any other."""
    queues = queues_of()
    queues.add(A, P, served(100.0), 0.0)
    run(queues, A, 0.0)
    queues.wait(A, 10.0)

    assert queues.promote(410.0) == [queues[A]]


def test_promotion_resets_the_window_only() -> None:
    """What a call is charged at its end is its whole life, promoted or not (the trap in the paper's line 29)."""
    queues = queues_of()
    queues.add(A, P, served(100.0), 0.0)
    run(queues, A, 10.0)
    queues.charge(30.0)
    put_out(queues, A, 40.0)
    queues.promote(1000.0)
    call = queues[A]

    assert (call.window_service_ms, call.window_wait_ms) == (0.0, 0.0)
    assert (call.service_ms, call.wait_ms) == (30.0, 970.0)
    assert queues.remove(A, 1100.0).wait_ms == 1070.0


def test_a_promoted_call_displaces_nobody() -> None:
    """It goes before those that wait, and displaces only whom it would have displaced before."""
    queues = queues_of()
    queues.add(A, P, served(100.0), 0.0)
    queues.add(B, P, served(100.0), 0.0)
    queues.add(C, P, served(1000.0), 0.0)
    run(queues, B)
    queues.promote(400.0)

    assert queues[A].lo_ms == 0.0
    assert queues[A].rank < queues[B].rank
    assert not queues[A].outranks(queues[B])
    assert queues[A].outranks(queues[C])


def test_running_calls_are_not_promoted() -> None:
    """Who runs does not starve."""
    queues = queues_of()
    queues.add(A, P, served(100.0), 0.0)
    run(queues, A, 1.0)

    assert queues.promote(1e9) == []


def test_fcfs_never_moves_a_call() -> None:
    """With one queue nothing is demoted or promoted, whatever it had."""
    queues = queues_of("fcfs")
    queues.add(A, P, served(1e9, waiting_ms=1e12), 0.0)
    queues.add(B, P, NEW, 0.0)
    run(queues, B, 0.0)

    assert not queues.charge(1e9)
    assert queues.promote(1e12) == []
    assert queues[A].rank < queues[B].rank


def test_new_program_and_the_floor() -> None:
    """A program that attained nothing has a defined ratio: it is in the best queue and needs no promotion."""
    queues = queues_of()
    queues.add(A, P, served(0.0, waiting_ms=1e6), 0.0)

    assert queues.promote(1e9) == []
    assert queues[A].lo_ms == 0.0


def test_only_the_batch_is_charged() -> None:
    """A call is charged for the steps it is part of, from joining to leaving, and what is left of its quantum stays."""
    queues = queues_of()
    for call_id in (A, B):
        queues.add(call_id, P, NEW, 0.0)
        run(queues, call_id)
    queues.charge(60.0)
    queues.leave(B)
    queues.charge(30.0)
    queues.join(B)

    assert queues.charge(20.0) == [queues[A]]
    assert queues.charge(20.0) == [queues[B]]
    assert queues.remove(A, 0.0).service_ms == 130.0
    assert queues.remove(B, 0.0).service_ms == 100.0


def test_priority_comes_before_the_queue() -> None:
    """A client's lower priority number goes first, however much its program had; equal ones follow the policy."""
    queues = queues_of()
    queues.add(A, P, NEW, 0.0)
    queues.add(B, P, served(1000.0), 0.0, priority=-1)
    queues.add(C, P, served(100.0), 0.0, priority=-1)

    assert sorted([A, B, C], key=lambda call_id: queues[call_id].rank) == [C, B, A]


def test_next_promotion_and_demotion() -> None:
    """What is due next is known: nothing is due before it."""
    queues = queues_of()
    queues.add(A, P, served(100.0), 0.0)
    queues.add(B, P, NEW, 0.0)
    run(queues, B)
    queues.charge(40.0)

    assert queues.next_promotion_ms == 400.0
    assert queues.next_demotion_ms == 60.0
    assert queues.promote(400.0) == [queues[A]]
    assert queues.next_promotion_ms == inf


def test_same_call_twice() -> None:
    """A call that is in cannot enter again, and trying changes nothing."""
    queues = queues_of()
    before = queues.add(A, P, NEW, 0.0).rank

    with pytest.raises(ValueError, match="call a is already queued"):
        queues.add(A, P, served(500.0), 1.0)
    assert [before] == ranks(queues, A)
    assert len(queues) == 1
