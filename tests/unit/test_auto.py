"""The policy `auto`: ATLAS while nothing is known and where the long have long to go, else the Gittins index."""

import pytest

from autellix.engine.policy import POLICIES, policy_named
from autellix.engine.policy.call import QueuedCall
from autellix.engine.policy.gittins import rank_table
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import Priorities, ProgramFacts, RankTable

A, B, P = CallId("a"), CallId("b"), ProgramId("p")
LADDER = Ladder.doubling(first_quantum_ms=100.0, queues=12)
BETA = 8.0
GROWS = rank_table([10.0] * 90 + [5000.0] * 10)
FALLS = rank_table([900.0, 1000.0, 1100.0] * 10)
PROGRAM = ProgramFacts(service_ms=800.0, critical_path_ms=300.0, kind="known")


def queues_of(policy: str, *lessons: Priorities) -> CallQueues:
    """Return the queues of a policy that was told these, one after the other."""
    queues = CallQueues(policy_named(policy), LADDER, beta=BETA)
    for lesson in lessons:
        queues.learn(lesson)
    return queues


def life(queues: CallQueues, program: ProgramFacts = PROGRAM) -> list[tuple[float, float]]:
    """Let a call come, use up a quantum, be put out and be promoted; return where it stood after each."""
    call = queues.add(A, P, program, 0.0)
    found = [(call.lo_ms, call.earned_ms)]
    queues.start(A, 0.0)
    queues.join(A)
    queues.charge(queues.next_demotion_ms)
    found.append((call.lo_ms, call.earned_ms))
    queues.leave(A)
    queues.preempt(A, 0.0)
    queues.promote(queues.next_promotion_ms)
    return [*found, (call.lo_ms, call.earned_ms)]


def told(pooled: RankTable | None = None, **kinds: RankTable) -> Priorities:
    """Return what is known of each kind, and of all programs."""
    return Priorities(pooled=pooled, kinds=kinds)


@pytest.mark.parametrize(
    "lesson",
    [told(), told(GROWS), told(GROWS, known=GROWS), told(FALLS, known=GROWS, other=GROWS)],
    ids=["nothing", "all programs grow", "a kind grows", "all kinds grow"],
)
def test_least_attained_first(lesson: Priorities) -> None:
    """Nothing known, or all kinds that are known growing, it is ATLAS; all programs together count until a kind is."""
    assert life(queues_of("atlas")) == life(queues_of("auto", lesson))


@pytest.mark.parametrize(
    "lesson",
    [told(FALLS), told(GROWS, known=FALLS), told(GROWS, known=GROWS, other=FALLS)],
    ids=["all programs fall", "its kind falls", "another kind falls"],
)
def test_index(lesson: Priorities) -> None:
    """With one kind where the old have less to go it is Gittins, for the programs of every kind."""
    assert life(queues_of("gittins", lesson)) == life(queues_of("auto", lesson))


def test_a_call_tells_by_whose_order_it_stands() -> None:
    """Each call names the policy that gave it its rank; one that is in a queue keeps its own until it leaves it."""
    queues = queues_of("auto")
    early = queues.add(A, P, PROGRAM, 0.0)
    queues.learn(told(FALLS))
    late = queues.add(B, P, PROGRAM, 0.0)

    assert ("atlas", "gittins") == (early.order, late.order)
    assert {"fcfs", "mlfq", "plas", "atlas", "gittins"} == {policy_named(name).order for name in POLICIES}


def test_it_changes_its_mind() -> None:
    """What was learnt last decides, either way."""
    there, back = told(GROWS, known=FALLS), told(GROWS, known=GROWS)

    assert life(queues_of("gittins", there)) == life(queues_of("auto", back, there))
    assert life(queues_of("atlas")) == life(queues_of("auto", there, back))


def standing(call: QueuedCall) -> tuple[float, float, float]:
    """Return where a call stands, and what is left of its quantum."""
    return call.lo_ms, call.earned_ms, call.due_ms


def test_calls_in_flight_stay_where_they_are() -> None:
    """A call goes on by the new order when it next leaves a queue, and by the old one again after the next change."""
    queues = queues_of("auto")
    runs, waits = (queues.add(call_id, P, PROGRAM, 0.0) for call_id in (A, B))
    queues.start(A, 0.0)
    queues.join(A)
    before = [standing(runs), standing(waits)]
    queues.learn(told(known=FALLS))

    assert before == [standing(runs), standing(waits)]
    queues.charge(100.0)  # [200, 400) of the ladder is not used up; the age is 900
    assert before[0] == standing(runs)
    queues.charge(100.0)
    assert runs.lo_ms == runs.earned_ms == FALLS.ranks_ms[list(FALLS.starts_ms).index(512.0)]
    queues.learn(told(known=GROWS))
    queues.charge(queues.next_demotion_ms)
    assert LADDER.queue_below(FALLS.ranks_ms[list(FALLS.starts_ms).index(512.0)]).lo_ms == runs.lo_ms
    assert [waits] == queues.promote(queues.next_promotion_ms)
    assert 0.0 == waits.lo_ms
