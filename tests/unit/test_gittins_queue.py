"""A queue that goes by the Gittins index, which it learns, against the best order there is."""

import random
from collections.abc import Callable
from math import inf

import pytest

from autellix.engine.policy import Policy, policy_named
from autellix.engine.policy.displacement import displacements
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.learning import Learnt
from autellix.engine.policy.queues import CallQueues
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts

LADDER = Ladder.doubling(first_quantum_ms=100.0, queues=12)


def mean_time_ms(policy: Policy, service_ms: Callable[[random.Random], float], *, rho: float = 0.8) -> float:
    """Return the mean time in a queue with one server and Poisson arrivals, at a mean service of 1000.

    Programs have one call each. What the policy may learn it learns from those that ended; the first fifth is left out.
    """
    chance = random.Random("one server")
    count, at_ms, arrivals = 4000, 0.0, []
    for _ in range(count):
        at_ms += chance.expovariate(rho / 1000)
        arrivals.append((at_ms, service_ms(chance)))
    return sum(OneServer(policy, arrivals).times_ms()[count // 5 :]) / (count - count // 5)


class OneServer:
    """A server for one call at a time, which gives way as the batch of an engine does, at no cost."""

    def __init__(self, policy: Policy, arrivals: list[tuple[float, float]]) -> None:
        self._queues = CallQueues(policy, LADDER, beta=1e9)
        self._learnt = Learnt()
        self._arrivals = arrivals
        self._left: dict[CallId, float] = {}
        self._number: dict[CallId, int] = {}
        self._served: CallId | None = None
        self._now_ms = 0.0
        self._times = [inf] * len(arrivals)

    def times_ms(self) -> list[float]:
        """Return how long each was in, in order of arrival."""
        for number, (at_ms, service_ms) in enumerate(self._arrivals):
            self._serve_until(at_ms)
            call_id = CallId(f"c{number}")
            self._queues.add(call_id, ProgramId(call_id), ProgramFacts(), at_ms)
            self._left[call_id], self._number[call_id] = service_ms, number
            self._choose()
        self._serve_until(inf)
        return self._times

    def _serve_until(self, at_ms: float) -> None:
        while self._served and self._now_ms < at_ms:
            passed = min(at_ms - self._now_ms, self._left[self._served], self._queues.next_demotion_ms)
            self._now_ms += passed
            self._left[self._served] -= passed
            self._queues.charge(passed)
            if self._left[self._served] <= 1e-6:
                self._end(self._served)
            self._choose()
        self._now_ms = max(self._now_ms, at_ms)

    def _end(self, call_id: CallId) -> None:
        ended = self._queues.remove(call_id, self._now_ms)
        del self._left[call_id]
        number = self._number[call_id]
        self._times[number] = self._now_ms - self._arrivals[number][0]
        if self._learnt.program_ended("", ended.service_ms):
            self._queues.learn(self._learnt.priorities())
        self._served = None

    def _choose(self) -> None:
        """Let the best run, if nobody does or it displaces who does."""
        waiting = sorted((self._queues[each] for each in self._left if each != self._served), key=lambda c: c.rank)
        running = [self._queues[self._served]] if self._served else []
        for victim in displacements(
            waiting,
            running,
            outranks=lambda newcomer, other: newcomer.outranks(other),
            fits=lambda _: True,
            free_slots=1 - len(running),
            most=1,
        ):
            self._queues.leave(victim.call_id)
            self._queues.preempt(victim.call_id, self._now_ms)
            self._served = None
        if self._served is None and waiting:
            self._served = waiting[0].call_id
            self._queues.start(self._served, self._now_ms)
            self._queues.join(self._served)


def exponential(chance: random.Random) -> float:
    """Return a service without memory."""
    return chance.expovariate(1 / 1000)


def two_exponentials(chance: random.Random) -> float:
    """Return a service that is short nine times of ten, and else 82 times as long: the longer, the longer to go."""
    return chance.expovariate(1 / 110) if chance.random() < 0.9 else chance.expovariate(1 / 9010)


def nearly_equal(chance: random.Random) -> float:
    """Return a service within a tenth of the mean: the longer, the shorter to go."""
    return chance.uniform(900, 1100)


def test_queue_without_memory() -> None:
    """Where the past tells nothing, no order is better than another."""
    fcfs, gittins = (mean_time_ms(policy_named(name), exponential) for name in ("fcfs", "gittins"))

    assert gittins == pytest.approx(fcfs, rel=0.05)


def test_queue_where_least_first_is_right() -> None:
    """Where residual life grows it does as least attained service first, far better than in order of arrival."""
    fcfs, plas, gittins = (mean_time_ms(policy_named(name), two_exponentials) for name in ("fcfs", "plas", "gittins"))

    assert gittins < 1.1 * plas
    assert gittins < fcfs / 2


def test_queue_where_first_come_first_served_is_right() -> None:
    """Where residual life falls it does as in order of arrival; least first takes more than twice as long."""
    fcfs, plas, gittins = (mean_time_ms(policy_named(name), nearly_equal) for name in ("fcfs", "plas", "gittins"))

    assert gittins < 1.05 * fcfs
    assert plas > 2 * fcfs
