"""What the gate remembers of programs that are silent, over, or not over after all."""

import pytest

from autellix.engine.policy.gate import LONG_GONE_MS
from tests.unit.gate_world import POOL_MS, GateWorld, blocks


@pytest.mark.parametrize("others", [0, 1])
def test_who_comes_back_after_long_finds_its_cache(others: int) -> None:
    """A program that was silent for an hour is not forgotten by its own call; those that stay silent are."""
    sut = GateWorld()
    for name in ("a", *("other",) * others):
        sut.call(name, 30)
        sut.end(name, 31)
        sut.call(f"{name}2", 31, program=name)
        sut.end(f"{name}2", 32)
    sut.wait(LONG_GONE_MS)
    sut.call("back", 32, program="a")

    assert set(blocks("a", 32)) <= sut.cache.there
    assert ["a"] == [*sut.gate._programs]


def test_a_long_call_hides_no_program_that_is_gone() -> None:
    """Programs that are silent for an hour are forgotten, whatever runs for longer than that."""
    sut = GateWorld(1000)
    sut.call("long", 9)
    for number in range(5):
        sut.call(f"a{number}", 9)
        sut.end(f"a{number}")
    sut.wait(LONG_GONE_MS)
    for number in range(5):
        sut.call(f"b{number}", 9)

    assert {"long", *(f"b{number}" for number in range(5))} == set(sut.gate._programs)


def test_who_calls_again_is_not_over() -> None:
    """The end of a program is of no effect any more once it calls again."""
    sut = GateWorld()
    sut.call("a1", 9, program="a")
    sut.over("a")
    sut.call("a2", 19, program="a", thread="two")
    sut.end("a1")
    sut.end("a2")

    assert ["a"] == [*sut.gate._programs]


def test_what_one_call_left_may_be_gone_on_with() -> None:
    """A client that names no program begins one with each turn: the answer before it is not evicted at once."""
    sut = GateWorld()
    sut.call("turn", 9)
    sut.end("turn", 12)
    sut.over("turn")

    assert set(blocks("turn", 12)) == set(sut.cache.orphaned)


def test_who_is_away_keeps_its_place_while_all_fit() -> None:
    """However long programs are away, nobody leaves for somebody who fits beside them."""
    sut = GateWorld()
    sut.compute()
    sut.call("a1", 9, program="a")
    sut.end("a1")
    sut.wait(2 * POOL_MS)
    sut.call("b", 4)

    assert (["a", "b"], []) == (sut.residents, sut.cache.exposed)


def test_who_leaves_for_too_many_makes_room() -> None:
    """A resident that leaves when the residents have outgrown the room leaves it to who waits, at once."""
    sut = GateWorld()
    sut.compute()
    sut.call("a", 38, level_ms=5.0)
    sut.end("a", 39)
    sut.call("b1", 40, program="b")
    sut.end("b1", 41)
    sut.call("x", 29, level_ms=1.0)
    assert ["x"] == sut.held
    sut.call("b2", 59, program="b")

    assert (["b", "x"], []) == (sut.residents, sut.held)


def test_all_that_are_idle_leave_for_who_needs_all() -> None:
    """A program of more than 0.90 of the blocks gets in at once when all residents are idle and their turns over."""
    sut = GateWorld()
    sut.compute()
    sut.call("a", 49)
    sut.call("all", 95)
    sut.wait(10 / 3 * POOL_MS)
    assert ["all"] == sut.end("a")


def test_who_leaves_in_part_makes_the_next_one_leave() -> None:
    """Of two that share a part of their caches both leave if it takes both, not one in vain."""
    sut = GateWorld()
    sut.compute()
    system = blocks("system", 30)
    for name in ("a", "b"):
        sut.call(name, blocks(name, 40, after=system))
    sut.call("x", 54)
    sut.wait(10 / 3 * POOL_MS - 1)
    for name in ("a", "b"):
        sut.end(name, blocks(name, 40, after=system))

    assert ["x"] == sut.wait(1)


def test_a_first_t_pool_is_a_reason_to_look() -> None:
    """Who has been away for longer than T_pool leaves once that is measured, not with the next call."""
    sut = GateWorld()
    for name, count in (("a", 49), ("c", 29)):
        sut.call(name, count)
        sut.end(name)
    sut.wait(2 * POOL_MS)
    sut.call("b", 39)
    sut.call("c2", 29, program="c")
    assert ["b"] == sut.held
    sut.compute()

    assert ["b"] == sut.open()


def test_the_next_one_is_tried_when_the_first_has_visited() -> None:
    """Who waits behind one that passes as a visitor is tried as a resident at once."""
    sut = GateWorld()
    sut.compute()
    sut.call("a", 59, level_ms=500.0)
    sut.call("x", 44, level_ms=1.0)
    sut.wait(4 * POOL_MS)
    sut.call("y1", 3, program="y", level_ms=100.0)
    sut.call("y2", blocks("yy", 46), program="y", thread="2", level_ms=300.0)
    sut.call("z", 9, level_ms=200.0)
    sut.end("a")

    assert ["y2"] == sut.held
    assert "z" in sut.residents
