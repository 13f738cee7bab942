"""The rules of the gate (`engine/policy/gate.py`), one by one: who is a resident, what it takes, and who waits."""

import random

import pytest

from tests.unit.gate_world import NEVER, POOL_MS, GateWorld, NoVisits, blocks


def test_below_pressure_nobody_is_held() -> None:
    """As long as all fit, every call passes at once, in the order in which they come, whatever their ranks."""
    chance, sut, live = random.Random(1), GateWorld(), list[str]()
    for number in range(500):
        program = f"p{chance.randrange(8)}-"  # eight of 11 blocks at most
        name = f"{program}{number}"
        sut.call(name, chance.randint(0, 9), program=program, level_ms=chance.random())
        assert not sut.gate.has_held
        sut.end(name, chance.randint(0, 10))
        sut.wait(chance.expovariate(1 / POOL_MS))
        sut.compute()
        live.append(name)

    assert live == sut.passed
    assert NEVER == sut.gate.look_at_ms


def test_a_block_counts_once() -> None:
    """A footprint is what calls and threads have, each block once, and the expected answers; so is that of all."""
    sut = GateWorld()
    system = blocks("system", 10)
    sut.call("a1", blocks("a", 15, after=system), program="a", thread="one")
    sut.call("a2", blocks("a", 15, after=system), program="a", thread="two")
    sut.call("b", blocks("b", 12, after=system))

    assert 15 + 2 == sut.program("a").claims
    assert 10 + (5 + 2) + (2 + 1) == sut.used
    sut.end("a1", blocks("a", 16, after=system))
    assert 10 + (6 + 1) + (2 + 1) == sut.used


def test_what_a_thread_leaves_is_kept() -> None:
    """Between its calls a resident has what the last call of each thread left, at each end anew."""
    sut = GateWorld()
    sut.call("a1", 10, program="a", thread="one")
    sut.call("a2", blocks("two", 20), program="a", thread="two")
    sut.end("a1")
    sut.end("a2", blocks("two", 25))
    assert 11 + 25 == sut.used
    sut.call("a3", blocks("two", 5), program="a", thread="two")
    sut.end("a3", blocks("two", 6))

    assert 11 + 6 == sut.used
    assert [f"two.{place}" for place in range(6, 25)] == sut.cache.exposed


def test_what_a_thread_left_long_ago_is_not_kept() -> None:
    """A program's thread that nobody continues for T_pool has nothing any more, though the program goes on."""
    sut = GateWorld()
    sut.compute()
    sut.call("a1", blocks("one", 9), program="a", thread="one")
    sut.end("a1")
    sut.wait(POOL_MS)
    sut.call("a2", 9, program="a", thread="two")
    assert 10 + 10 == sut.used
    sut.wait(1.0)
    sut.call("a3", 9, program="a", thread="three")

    assert 9 + 2 == sut.used


@pytest.mark.parametrize(("prompt", "residents"), [(29, ["a", "b"]), (30, ["a"])])
def test_admitted_up_to_nine_tenths(prompt: int, residents: list[str]) -> None:
    """A program becomes a resident when all of it fits in 0.90 of the blocks beside what is claimed."""
    sut = GateWorld(gate=NoVisits)
    sut.call("a", 59)
    sut.call("b", prompt)

    assert residents == sut.residents == sut.passed


def test_nobody_overtakes_the_first() -> None:
    """If the first held program does not fit, nobody behind it becomes a resident, however small."""
    sut = GateWorld(gate=NoVisits)
    sut.call("a", 59)
    sut.call("large", 59)
    sut.call("small", 0)
    assert ["large", "small"] == sut.held
    sut.end("a")

    assert ["large", "small"] == sut.over("a")


def test_with_no_resident_the_first_fits() -> None:
    """However large the first program is, it gets in when nobody else is there."""
    sut = GateWorld(gate=NoVisits)
    sut.call("a", 0)
    sut.call("all", 99)
    sut.call("b", 0)
    assert ["all", "b"] == sut.held
    sut.end("a")
    sut.over("a")

    assert ["a", "all"] == sut.passed
    assert 100 == sut.used


def test_all_calls_of_a_program_pass_together() -> None:
    """When a program becomes a resident none of its calls is held any more."""
    sut = GateWorld(gate=NoVisits)
    sut.call("a", 79)
    sut.call("b1", 29, program="b", level_ms=1.0)
    sut.call("c", 89, level_ms=2.0)
    sut.call("b2", 29, program="b", thread="two", level_ms=9.0)
    assert ["b1", "c", "b2"] == sut.held
    sut.end("a")

    assert ["b1", "b2"] == sut.over("a")


@pytest.mark.parametrize(("prompt", "leaves"), [(58, False), (59, True)])
def test_shrinks_above_its_limit(prompt: int, *, leaves: bool) -> None:
    """Residents may outgrow 0.90 of the blocks; above 0.98 one leaves, and its cache may be evicted first."""
    sut = GateWorld(gate=NoVisits)
    sut.call("b1", 40, program="b")
    sut.wait(1.0)
    sut.call("a", 39)
    sut.end("a", 39)
    sut.end("b1", 40)
    sut.call("b2", prompt, program="b")

    assert 39 + prompt + 1 == sut.used + 39 * leaves
    assert (["b"] if leaves else ["b", "a"]) == sut.residents
    assert (blocks("a", 39) if leaves else []) == sut.cache.exposed
    assert ["b1", "a", "b2"] == sut.passed


def test_who_leaves_ranks_last_of_those_at_a_boundary() -> None:
    """Who has a call in flight stays; of the others the one of the worst rank leaves, or of equals who came last."""
    sut = GateWorld(gate=NoVisits)
    for name, level_ms in (("a", 1.0), ("b", 3.0), ("c", 3.0), ("d", 2.0), ("busy", 9.0)):
        sut.call(name, 16, level_ms=level_ms)
        sut.wait(1.0)
    for name in "abcd":
        sut.end(name, 16)
    sut.call("d2", 36, program="d", level_ms=2.0)

    assert ["a", "b", "d", "busy"] == sut.residents
    assert "d2" in sut.passed


def test_who_grows_and_ranks_last_is_held_itself() -> None:
    """A resident whose new call makes it too much, and that ranks last, leaves; nobody else does."""
    sut = GateWorld(gate=NoVisits)
    sut.call("a", 39, level_ms=1.0)
    sut.call("b1", 40, program="b", level_ms=2.0)
    sut.end("a", 39)
    sut.end("b1", 40)
    sut.call("b2", 70, program="b", level_ms=2.0)

    assert ["a"] == sut.residents
    assert ["b2"] == sut.held
    assert 39 == sut.used


def test_the_only_resident_never_leaves_for_its_size() -> None:
    """There is nobody for whose sake it would."""
    sut = GateWorld(gate=NoVisits)
    sut.call("a1", 39, program="a")
    sut.end("a1")
    sut.call("a2", 99, program="a")

    assert ["a1", "a2"] == sut.passed
