"""The Gittins index: its ranks against theory, and how a call goes by them."""

from collections.abc import Callable
from itertools import pairwise
from math import inf, log, sqrt

import pytest

from autellix.engine.policy import Policy, policy_named
from autellix.engine.policy.gittins import BEYOND, Gittins, bucket, rank_table
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import Priorities, ProgramFacts, RankTable

A, B, P = CallId("a"), CallId("b"), ProgramId("p")
LADDER = Ladder.doubling(first_quantum_ms=100.0, queues=12)


def quantiles(inverse: Callable[[float], float], count: int = 1000) -> list[float]:
    """Return a sample that lies evenly in a distribution; `inverse` is that of its distribution function."""
    return [inverse((number + 0.5) / count) for number in range(count)]


def known(table: RankTable, below_ms: float) -> dict[float, float]:
    """Return the ranks of the buckets that begin below an age, by where they begin."""
    return {start: rank for start, rank in zip(table.starts_ms, table.ranks_ms, strict=True) if start < below_ms}


def test_exponential() -> None:
    """Without memory an end takes the mean at every age, and counts by the inverse of an age within the bucket."""
    ranks = known(rank_table(quantiles(lambda share: -1000 * log(1 - share))), below_ms=2500)
    old = {start: rank for start, rank in ranks.items() if start > 100}

    assert 5 == len(old)
    assert all(sqrt(1000 * start) < rank < sqrt(1000 * 2 * start) for start, rank in old.items())


def test_uniform() -> None:
    """Of services near 1000 what is left falls with what was had: the rank is the root of it times what is expected."""
    table = rank_table(quantiles(lambda share: 900 + 200 * share))
    ranks = known(table, below_ms=900)

    assert {start: sqrt(1000 * (1000 - start)) for start in ranks} == pytest.approx(ranks, rel=0.005)
    assert not table.grows


def test_two_kinds_in_one() -> None:
    """Of nine programs of 10 ms and one of 1000 the ten rank by what it takes to end nine, who is older by the rest."""
    table = rank_table([10.0] * 9 + [1000.0])
    ranks = known(table, below_ms=1000)
    old = {start: rank for start, rank in ranks.items() if start > 10}

    assert ranks[0.0] == pytest.approx(sqrt((90 + 16) / (9 / 10)))
    assert {start: sqrt(1000 * (1000 - start)) for start in old} == pytest.approx(old)
    assert table.grows


def test_an_end_counts_by_how_short_the_program_is() -> None:
    """Between two that need as long until they end, the shorter program goes first: it gains more per token."""
    short, long = rank_table([100.0] * 30), rank_table([1000.0] * 30)

    assert bucket(short, 0.0).lo_ms == pytest.approx(100)
    assert bucket(long, 950.0).lo_ms == pytest.approx(sqrt(1000 * (1000 - 512)))
    assert bucket(short, 0.0).lo_ms < bucket(long, 950.0).lo_ms


def test_beyond_all_evidence() -> None:
    """Beyond the longest program the rank grows with the age, from that of the oldest known bucket on."""
    table = rank_table([100.0] * 29 + [5000.0])
    beyond = [(start, rank) for start, rank in zip(table.starts_ms, table.ranks_ms, strict=True) if start > 5000]

    assert len(beyond) == BEYOND
    assert all(rank == start for start, rank in beyond)
    assert inf == bucket(table, 1e12).quantum_ms
    assert max(table.ranks_ms) == bucket(table, 1e12).lo_ms


@pytest.mark.parametrize("services", [[5.0], [1e-3, 1e9], [7.0] * 40, [2.0**k for k in range(-20, 30)]])
def test_any_sample(services: list[float]) -> None:
    """Whatever the services, the buckets ascend, their ranks are positive, and there are few of them."""
    table = rank_table(services)

    assert all(lower < upper for lower, upper in pairwise(table.starts_ms))
    assert all(0 < rank < inf for rank in table.ranks_ms)
    assert len(table.starts_ms) == len(table.ranks_ms) <= 30


def test_tables_share_a_grid() -> None:
    """Two tables have the same buckets where both have any."""
    one, other = (rank_table([10.0, longest]).starts_ms for longest in (700.0, 3000.0))

    assert [start for start in one if start >= other[1]] == [start for start in other if 0 < start <= one[-1]] != []


def told(**kinds: list[float]) -> Gittins:
    """Return a policy that knows these services of each kind; `pooled` is of all."""
    tables = {kind: rank_table(services) for kind, services in kinds.items()}
    policy = Gittins()
    policy.learn(Priorities(pooled=tables.pop("pooled", None), kinds=tables))
    return policy


def entered(policy: Policy, *, kind: str = "", service_ms: float = 0.0, beta: float = 8.0) -> CallQueues:
    """Return queues with one call of a program of such a kind and age."""
    queues = CallQueues(policy, LADDER, beta=beta)
    queues.add(A, P, ProgramFacts(service_ms=service_ms, kind=kind), 0.0)
    return queues


def test_kinds() -> None:
    """A kind that is known goes by its own ranks, any other by those of all programs."""
    policy = told(pooled=[500.0] * 30, short=[10.0] * 30)

    assert entered(policy, kind="short")[A].lo_ms == pytest.approx(10)
    assert entered(policy, kind="new")[A].lo_ms == pytest.approx(500)


def test_nothing_known() -> None:
    """While nothing is known, a call stands where PLAS would put it, and sinks as there."""
    for service_ms in (0.0, 99.0, 100.0, 5000.0):
        queues, plas = entered(Gittins(), service_ms=service_ms), entered(policy_named("plas"), service_ms=service_ms)
        for each in (queues, plas):
            each.join(A)
            each.charge(each.next_demotion_ms)

        assert plas[A].level == queues[A].level
        assert plas[A].earned_ms == queues[A].earned_ms


def test_rises_with_age() -> None:
    """Where what is left falls, a call has a better rank after each bucket, and displaces whom it could not before."""
    queues = entered(told(pooled=quantiles(lambda share: 900 + 200 * share)))
    other = queues.add(B, P, ProgramFacts(service_ms=400.0), 0.0)
    queues.join(A)

    assert other.outranks(queues[A])
    queues.charge(400.0)
    assert other.level == queues[A].level
    assert queues[A].lo_ms == pytest.approx(sqrt(1000 * (1000 - 256)), rel=0.005)
    assert not other.outranks(queues[A])
    assert not queues[A].outranks(other)
    queues.charge(200.0)
    assert queues[A].lo_ms == pytest.approx(sqrt(1000 * (1000 - 512)), rel=0.005)
    assert queues[A].outranks(other)


def test_quantum_ends_with_the_bucket() -> None:
    """A call that enters in the middle of a bucket leaves it when its program has the age where the next begins."""
    queues = entered(told(pooled=quantiles(lambda share: 4000 * share)), service_ms=1100.0)
    queues.join(A)

    assert queues.next_demotion_ms == 2048 - 1100
    queues.charge(1000.0)
    assert queues.next_demotion_ms == 4096 - 2100


def test_promotion_is_to_the_rank_of_new_programs() -> None:
    """A promoted call ranks as a new one of its kind and displaces whom it could before, until its bucket ends."""
    queues = entered(told(pooled=[10.0] * 900 + [1000.0] * 100), service_ms=300.0)
    before = queues[A].lo_ms
    (promoted,) = queues.promote(8 * before)
    new = queues.add(B, P, ProgramFacts(), 8 * before)

    assert (new.lo_ms, before) == (promoted.lo_ms, promoted.earned_ms)
    assert new.lo_ms < before
    queues.join(A)
    queues.charge(512.0 - 300.0)
    assert new.lo_ms < queues[A].lo_ms == queues[A].earned_ms < before


def test_promotion_makes_no_rank_worse() -> None:
    """Where what is left falls an old program ranks before new ones already, and still does when it is promoted."""
    queues = entered(told(pooled=[1000.0] * 30), service_ms=800.0)
    before = queues[A].lo_ms
    (promoted,) = queues.promote(8 * 800.0)

    assert before == promoted.lo_ms < 1000


def test_a_new_program_does_not_starve_at_once() -> None:
    """Until a program has had what is expected of it, that stands for what it attained: it starves at beta times it."""
    queues = entered(told(pooled=[1000.0] * 30))

    assert queues.promote(7999.0) == []
    assert [queues[A]] == queues.promote(8000.0)
