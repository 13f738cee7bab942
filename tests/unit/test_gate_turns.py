"""When a resident leaves the gate's room, and how long the first that waits can have to wait."""

import pytest

from autellix.engine.policy.gate import Gate
from tests.unit.gate_world import NEVER, POOL_MS, GateWorld, NoVisits, blocks

QUANTUM_MS = Gate.TURN_POOLS[0] * POOL_MS


def full(*, level_ms: float = 0.0) -> GateWorld:
    """Return a gate with T_pool known and one resident, `a`, between two calls, beside which 50 blocks do not fit."""
    sut = GateWorld(gate=NoVisits)
    sut.compute()
    sut.call("a", 49, level_ms=level_ms)
    sut.end("a")
    return sut


@pytest.mark.parametrize("waiting", [True, False])
def test_away_for_t_pool(*, waiting: bool) -> None:
    """A resident that is away for T_pool leaves if others wait, and only then."""
    sut = full()
    if waiting:
        sut.call("b", 49)

    assert [] == sut.wait(POOL_MS - 1.0)
    assert (POOL_MS if waiting else NEVER) == sut.gate.look_at_ms
    assert (["b"] if waiting else []) == sut.wait(1.0)
    assert (["b"] if waiting else ["a"]) == sut.residents
    assert (50 if waiting else 0) == len(sut.cache.exposed)


def test_who_comes_back_in_time_stays() -> None:
    """A call of a resident passes before those that wait, and being away is counted anew from its end."""
    sut = full()
    sut.call("b", 49)
    sut.wait(POOL_MS - 1.0)
    sut.call("a2", 49, program="a")
    sut.wait(POOL_MS)
    sut.end("a2", 50)

    assert [] == sut.wait(POOL_MS - 1.0)
    assert ["b"] == sut.wait(1.0)


def test_nothing_is_decided_while_t_pool_is_unknown() -> None:
    """Before a prompt of 64 tokens was computed nobody is away for too long, and no turn ends."""
    sut = GateWorld(gate=NoVisits)
    sut.compute(63)
    sut.call("a", 49)
    sut.end("a")
    sut.call("b", 49)

    assert NEVER == sut.gate.look_at_ms
    assert [] == sut.wait(1e12)
    sut.compute(64)
    sut.call("c", 49)
    assert ["b"] == sut.passed[-1:]


def make_calls(sut: GateWorld, until_ms: float, *, level_ms: float = 0.0) -> None:
    """Let `a` make one call after the other until then, as long as it is a resident."""
    while sut.now_ms < until_ms and "a" in sut.residents:
        sut.call("a again", 49, program="a", level_ms=level_ms)
        sut.wait(min(POOL_MS / 2, until_ms - sut.now_ms))
        sut.end("a again", 50)


@pytest.mark.parametrize(("at_ms", "residents"), [(QUANTUM_MS - 1.0, ["a"]), (QUANTUM_MS, ["b"])])
def test_a_turn_is_a_quantum(at_ms: float, residents: list[str]) -> None:
    """At a call boundary after a quantum a resident leaves for the first that waits, which then fits."""
    sut = full()
    sut.call("b", 49)
    make_calls(sut, at_ms)

    assert residents == sut.residents


@pytest.mark.parametrize(("turn", "pools"), [(1, 10 / 3), (2, 5.0), (3, 10.0), (4, 10.0)])
def test_each_turn_is_longer_up_to_the_third(turn: int, pools: float) -> None:
    """Who is a resident for the second time stays for T_pool / 0.2, then for T_pool / 0.1 each time."""
    sut = full()
    for number in range(turn - 1):
        sut.call(f"b{number}", 49)
        sut.wait(POOL_MS)
        sut.end(f"b{number}")
        sut.over(f"b{number}")
        sut.call(f"a{number}", 49, program="a")
        sut.end(f"a{number}")
    began_ms = sut.now_ms
    sut.call("b", 49)
    make_calls(sut, began_ms + pools * POOL_MS - 1.0)
    assert ["a"] == sut.residents
    make_calls(sut, began_ms + pools * POOL_MS)

    assert ["b"] == sut.residents


def test_a_turn_ends_between_two_calls() -> None:
    """A resident that is away when its turn ends leaves then, though nothing else happens."""
    sut = full()
    sut.call("b", 49)
    make_calls(sut, QUANTUM_MS - POOL_MS / 2)

    assert QUANTUM_MS == sut.gate.look_at_ms
    assert ["b"] == sut.wait(POOL_MS / 2)


@pytest.mark.parametrize(("level_ms", "residents"), [(2.0, ["b"]), (1.0, ["b"]), (0.0, ["a"])])
def test_a_turn_ends_for_who_ranks_before(level_ms: float, residents: list[str]) -> None:
    """A resident of a better rank than the first that waits stays; one of an equal rank had its turn."""
    sut = full(level_ms=level_ms)
    sut.call("b", 49, level_ms=1.0)
    make_calls(sut, 2 * QUANTUM_MS, level_ms=level_ms)

    assert residents == sut.residents


def test_nobody_leaves_in_vain() -> None:
    """A resident whose turn is over stays when the first that waits would not fit in its place either."""
    sut = full()
    sut.call("other", 39, level_ms=-1.0)
    sut.call("large", 59)
    make_calls(sut, 2 * QUANTUM_MS)

    assert ["large"] == sut.held
    assert ["a", "other"] == sut.residents


def test_it_leaves_at_a_boundary_only() -> None:
    """Of a resident with parallel calls those in flight go on, those that come wait; it leaves when all have ended."""
    sut = GateWorld()
    sut.compute()
    sut.call("a1", 49, program="a", thread="one")
    sut.call("a2", 49, program="a", thread="two")
    sut.call("b", 49)
    sut.wait(QUANTUM_MS)
    sut.end("a1", 49)
    sut.call("a3", 0, program="a", thread="one")

    assert ["b", "a3"] == sut.held
    assert ["a"] == sut.residents
    assert ["b"] == sut.end("a2", 49)[:1]
    assert ["b"] == sut.residents


def test_who_is_first_itself_does_not_leave() -> None:
    """A resident that is to leave stays when nobody waits before its own call any more."""
    sut = GateWorld()
    sut.compute()
    sut.call("a1", 49, program="a", thread="one")
    sut.call("b", 49)
    sut.wait(QUANTUM_MS)
    sut.call("a2", 0, program="a", thread="two")
    assert ["b", "a2"] == sut.held
    sut.rerank("a2", -1.0)

    assert (["b"], ["a"]) == (sut.held, sut.residents)


def test_nobody_waits_for_who_has_nobody_to_leave_for() -> None:
    """If the one that it was to make room for passes elsewhere it stays, and hides nobody that fits."""
    sut = GateWorld()
    sut.compute()
    sut.call("a1", 39, program="a", thread="one")
    sut.call("b", 39)
    sut.call("x", 29)
    sut.wait(QUANTUM_MS)
    sut.call("a2", 9, program="a", thread="two")
    assert ["x", "a2"] == sut.held

    assert ["x", "a2"] == sut.end("b")
    assert ["a", "x"] == sut.residents


def test_two_leave_for_one() -> None:
    """Who needs the room of two residents gets it, although the two are never at a boundary at the same time."""
    sut = GateWorld(gate=NoVisits)
    sut.compute()
    sut.call("a1", 39, program="a")
    sut.call("b1", 39, program="b")
    sut.call("large", 59)
    sut.wait(QUANTUM_MS)
    sut.end("a1", 40)
    sut.call("a2", 39, program="a")
    assert ["large", "a2"] == sut.held
    sut.end("b1", 40)

    assert ["a1", "b1", "large"] == sut.passed


def test_all_leave_for_who_needs_more_than_is_admitted() -> None:
    """A program of more than 0.90 of the blocks gets in when all turns are over, though it fits beside nobody."""
    sut = GateWorld(gate=NoVisits)
    sut.compute()
    sut.call("a1", 39, program="a")
    sut.call("b1", 39, program="b")
    sut.call("all", 95)
    sut.wait(QUANTUM_MS)
    for name in "ab":
        sut.end(f"{name}1", 40)
        sut.call(f"{name}2", 39, program=name)

    assert ["a1", "b1", "all"] == sut.passed


def test_what_was_shared_with_who_leaves_is_needed() -> None:
    """A program that shares blocks with a resident fits in its place only with them."""
    sut = GateWorld(gate=NoVisits)
    system = blocks("system", 30)
    sut.compute()
    sut.call("other", 39, level_ms=-1.0)
    sut.call("a", blocks("a", 40, after=system))
    sut.call("b", blocks("b", 69, after=system))
    sut.wait(QUANTUM_MS)
    sut.end("a")

    assert ["b"] == sut.held
    assert ["b"] == sut.end("other") + sut.over("other")
    assert 70 == sut.used
