"""Algorithm 1 under any sequence of events: nothing is lost, nothing is double, nobody starves."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from autellix.engine.policy import policy_named
from autellix.engine.policy.gittins import rank_table
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import Priorities, ProgramFacts

BETA = 3.0
P = ProgramId("p")
durations = st.floats(0, 2000)


@dataclass
class Life:
    """What the test saw of one call."""

    program: ProgramFacts
    running: bool = False
    joined: bool = False
    promoted: bool = False
    """Since it was demoted last."""
    service_ms: float = 0.0
    wait_ms: float = 0.0
    window_service_ms: float = 0.0
    window_wait_ms: float = 0.0

    def ratio(self, bound_ms: float) -> float:
        """Waited over attained, as paper section 4.2.2 has it, or over the bound of the queue, if that is more."""
        waited = self.program.waiting_ms + self.window_wait_ms
        return waited / max(self.program.service_ms + self.window_service_ms, bound_ms, 1.0)


class QueuesMachine(RuleBasedStateMachine):
    """Drives `CallQueues` and a slow, plain account of the same calls."""

    calls = Bundle("calls")
    policy = "plas"

    def __init__(self) -> None:
        super().__init__()
        self.queues = CallQueues(policy_named(self.policy), Ladder.doubling(first_quantum_ms=100, queues=5), beta=BETA)
        self.lives: dict[CallId, Life] = {}
        self.now_ms = 0.0
        self.added = 0

    @rule(target=calls, service_ms=durations, waiting_ms=durations)
    def add(self, service_ms: float, waiting_ms: float) -> CallId:
        """A call arrives."""
        call_id = CallId(f"c{self.added}")
        self.added += 1
        self.lives[call_id] = Life(ProgramFacts(service_ms=service_ms, waiting_ms=waiting_ms))
        self.queues.add(call_id, P, self.lives[call_id].program, self.now_ms)
        return call_id

    @rule(passed_ms=durations)
    def pass_time(self, passed_ms: float) -> None:
        """Nothing happens for a while."""
        self.now_ms += passed_ms
        for life in self.lives.values():
            if not life.running:
                life.wait_ms += passed_ms
                life.window_wait_ms += passed_ms

    @rule(call_id=calls)
    def start(self, call_id: CallId) -> None:
        """A call is in the batch, and keeps its place."""
        before = self.queues[call_id].rank
        self.queues.start(call_id, self.now_ms)
        self.lives[call_id].running = True
        assert before == self.queues[call_id].rank

    @rule(call_id=calls)
    def preempt(self, call_id: CallId) -> None:
        """A call leaves the batch, and keeps its place."""
        before = self.queues[call_id].rank
        self.queues.preempt(call_id, self.now_ms)
        self.lives[call_id].running = False
        assert before == self.queues[call_id].rank

    @rule(call_id=calls)
    def join(self, call_id: CallId) -> None:
        """A call is part of the steps from now on."""
        self.queues.join(call_id)
        self.lives[call_id].joined = True

    @rule(call_id=calls)
    def leave(self, call_id: CallId) -> None:
        """A call is part of no further step."""
        self.queues.leave(call_id)
        self.lives[call_id].joined = False

    @rule(step_ms=durations)
    def charge(self, step_ms: float) -> None:
        """A step ends; a call that was put out meanwhile was in it all the same."""
        due = self.queues.next_demotion_ms
        before = {call_id: len(self.queues[call_id].queues) for call_id in self.lives}
        demoted = {call.call_id for call in self.queues.charge(step_ms)}
        assert bool(demoted) == (due <= step_ms)
        for call_id, life in self.lives.items():
            assert len(self.queues[call_id].queues) == before[call_id] + (call_id in demoted)
            assert life.joined or call_id not in demoted
            life.promoted &= call_id not in demoted
            if life.joined:
                life.service_ms += step_ms
                life.window_service_ms += step_ms

    @precondition(lambda self: self.lives)
    @rule()
    def promote(self) -> None:
        """Who starves is promoted; after that nobody does who is not in the best queue or was promoted."""
        first_ms = self.queues.next_promotion_ms
        bounds = {call_id: self.queues[call_id].lo_ms for call_id in self.lives}
        promoted = self.queues.promote(self.now_ms)
        assert not promoted or first_ms <= self.now_ms
        for call in promoted:
            life = self.lives[call.call_id]
            assert not life.running
            assert life.ratio(bounds[call.call_id]) >= BETA * (1 - 1e-9)
            life.window_service_ms = life.window_wait_ms = 0.0
            life.promoted = True
        for call_id, life in self.lives.items():
            if not life.running and not life.promoted and self.queues[call_id].lo_ms > 0:
                assert life.ratio(bounds[call_id]) <= BETA * (1 + 1e-9)

    @rule(call_id=consumes(calls))
    def remove(self, call_id: CallId) -> None:
        """A call leaves with what it was charged in its whole life."""
        ended, life = self.queues.remove(call_id, self.now_ms), self.lives.pop(call_id)
        assert ended.service_ms == pytest.approx(life.service_ms)
        assert ended.wait_ms == pytest.approx(life.wait_ms)
        assert self.queues.get(call_id) is None

    @invariant()
    def holds_every_call_once(self) -> None:
        """No call is lost and no two share a rank."""
        found = [self.queues[call_id].rank for call_id in self.lives]
        assert len(self.queues) == len(self.lives)
        assert len(set(found)) == len(found)

    @invariant()
    def history_is_a_walk(self) -> None:
        """A call goes down one queue at a time, and up only to the best."""
        for call_id in self.lives:
            call = self.queues[call_id]
            assert self.queues.ladder.queue(call.queues[-1]).lo_ms == call.lo_ms
            assert all(after in (before + 1, 0) for before, after in pairwise(call.queues))


class GittinsMachine(QueuesMachine):
    """The same for the policy whose queues are no ladder, and which learns meanwhile."""

    policy = "gittins"

    @rule(services=st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=50))
    def learn(self, services: list[float]) -> None:
        """Programs ended; what follows from it moves nobody yet."""
        before = [self.queues[call_id].rank for call_id in self.lives]
        self.queues.learn(Priorities(pooled=rank_table(services)))
        assert before == [self.queues[call_id].rank for call_id in self.lives]

    @invariant()
    def history_is_a_walk(self) -> None:
        """A call is where its service brought it, or better, if it was promoted."""
        for call_id in self.lives:
            call = self.queues[call_id]
            assert call.lo_ms <= call.earned_ms


class AutoMachine(GittinsMachine):
    """The same for the policy that goes by the one order or the other, as what it learns makes it."""

    policy = "auto"


TestQueues = QueuesMachine.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGittins = GittinsMachine.TestCase
TestGittins.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAuto = AutoMachine.TestCase
TestAuto.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("leave", [True, False])
def test_heap_does_not_grow(leave: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """What is remembered of who may starve is bounded by the calls that are in, however often they start and stop."""
    queues = CallQueues(policy_named("plas"), Ladder((1.0, 1e12)), beta=1e9)
    program = ProgramFacts(service_ms=1e9)
    queues.add(CallId("stays"), P, program, 0.0)
    for turn in range(5000):
        queues.start(CallId("stays"), 0.0)
        queues.join(CallId("stays"))
        queues.preempt(CallId("stays"), 0.0)
        queues.leave(CallId("stays"))
        if leave:
            queues.add(CallId(f"c{turn}"), P, program, 0.0)
            queues.remove(CallId(f"c{turn}"), 0.0)

    assert len(queues._starving._heap) < 200
    assert len(queues._expiring._heap) < 200
