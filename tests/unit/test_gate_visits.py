"""Held calls that pass though their programs are no residents: where they fit, and what it may cost."""

import pytest

from autellix.engine.policy.gate import LOOKED_AT, Gate
from tests.unit.gate_world import POOL_MS, AnyVisitor, GateWorld, NoVisits, blocks

SHARE = Gate.VISIT_SHARE
SAVED_MS = 1000.0
LOST_MS = 35 * POOL_MS / 100
"""What it takes to compute 35 of 100 blocks."""


def beside_a_resident(gate: type[Gate] = AnyVisitor) -> GateWorld:
    """Return a gate with T_pool known and a resident of 60 blocks."""
    sut = GateWorld(gate=gate)
    sut.compute()
    sut.call("a", 59)
    return sut


@pytest.mark.parametrize(("prompt", "passes"), [(29, True), (30, True), (37, True), (38, False)])
def test_a_visit_fits_beside_all_claims(prompt: int, *, passes: bool) -> None:
    """A call that fits in 0.98 of the blocks passes, and its program is a resident only if it fits in 0.90."""
    sut = beside_a_resident()
    sut.call("b", prompt)

    assert passes == ("b" in sut.passed)
    assert (prompt < 30) == ("b" in sut.residents)
    assert 60 + (prompt + 1) * passes == sut.used


@pytest.mark.parametrize(("prompt", "passes"), [(19, True), (20, False)])
def test_only_small_calls_visit(prompt: int, *, passes: bool) -> None:
    """A call that needs more than a 16th of the blocks is held, though it would fit."""
    sut = GateWorld(320)
    sut.compute()
    sut.call("a", 229)
    sut.call("first", 89)
    sut.call("b", prompt)

    assert passes == ("b" in sut.passed)


def test_a_visitor_keeps_nothing() -> None:
    """It claims blocks while it is in flight; what it leaves may be evicted before all that residents have."""
    sut = beside_a_resident()
    sut.call("b", 35)
    sut.end("b", 36)

    assert 60 == sut.used
    assert blocks("b", 36) == sut.cache.exposed


def test_without_a_budget_there_are_no_visits() -> None:
    """A gate may be told to let residents pass only."""
    sut = beside_a_resident(NoVisits)
    sut.call("b", 35)

    assert ["b"] == sut.held


def visit_again(sut: GateWorld) -> None:
    """Let `b`, of which everything was evicted, visit once more."""
    sut.cache.evict(blocks("b", 36))
    sut.call("b again", 35, program="b")
    if "b again" not in sut.held:
        sut.end("b again", 36)


def test_computing_again_is_paid() -> None:
    """When visits made the engine compute more again than is saved, there are none until that is paid back."""
    sut = beside_a_resident()
    sut.call("b", 35)
    sut.end("b", 36)
    for _ in range(3):
        visit_again(sut)
    assert [] == sut.held
    visit_again(sut)
    opens_in_ms = (3 * LOST_MS - SAVED_MS) / SHARE

    assert ["b again"] == sut.held
    assert opens_in_ms == pytest.approx(sut.gate.opens_in_ms)
    sut.gate.step(opens_in_ms - 1.0, prompt_tokens=0, tokens=1, now_ms=sut.now_ms)
    assert [] == sut.open()
    sut.gate.step(1.1, prompt_tokens=0, tokens=1, now_ms=sut.now_ms)
    assert ["b again"] == sut.open()


def test_newcomers_cost_nothing() -> None:
    """What is computed for the first time is not computed again, though it will be evicted."""
    sut = beside_a_resident()
    for number in range(100):
        sut.call(f"new{number}", 35)
        sut.end(f"new{number}")

    assert 101 == len(sut.passed)
    assert 0 == sut.gate.opens_in_ms


def overdrawn() -> GateWorld:
    """Return a gate of 320 blocks with a resident of 230, a large call held, and no budget for visits."""
    sut = GateWorld(320)
    sut.compute()
    sut.call("a", 229)
    sut.call("first", 89)
    for number in range(40):
        sut.cache.evict(blocks("b", 19))
        sut.call(f"b{number}", 19, program="b")
        if sut.gate.opens_in_ms:
            return sut
        sut.end(f"b{number}", 19)
    raise AssertionError("visits cost nothing")


@pytest.mark.parametrize(("prompt", "passes"), [(9, True), (10, False)])
def test_small_newcomers_visit_though_nothing_is_left(prompt: int, *, passes: bool) -> None:
    """Who brings nothing back passes in any case, if it needs a 32nd of the blocks at most."""
    sut = overdrawn()
    sut.call("new", prompt)

    assert passes == ("new" in sut.passed)


@pytest.mark.parametrize("evicted", [False, True])
def test_who_comes_back_visits_then_if_its_cache_is_still_there(*, evicted: bool) -> None:
    """A small call whose program's cache nobody needed meanwhile brings nothing back either."""
    sut = overdrawn()
    sut.call("new", 8)
    sut.end("new", 8)
    if evicted:
        sut.cache.evict(blocks("new", 8))
    sut.call("again", 8, program="new")

    assert evicted == ("again" in sut.held)


@pytest.mark.parametrize(("waited_ms", "passes"), [(10 / 3 * POOL_MS - 1, True), (10 / 3 * POOL_MS, False)])
def test_visits_do_not_pass_somebody_for_ever(waited_ms: float, *, passes: bool) -> None:
    """Once a program has been the first that waits for T_pool / 0.3 nobody visits, until another is the first."""
    sut = GateWorld()
    sut.compute()
    for number in range(3):
        sut.call(f"a{number}", 19)
    sut.call("first", 89)
    sut.wait(waited_ms)
    sut.call("small", 3)
    before = "small" in sut.passed
    sut.abort("first")

    assert passes == before
    assert "small" in sut.passed


def test_visits_end_also_if_it_was_the_first_before_t_pool_was_known() -> None:
    """What counts is how long it has been the first, whenever the time of a prompt was measured."""
    sut = GateWorld()
    for number in range(3):
        sut.call(f"a{number}", 19)
    sut.call("first", 89)
    sut.compute()
    sut.wait(10 / 3 * POOL_MS)
    sut.call("small", 3)

    assert "small" in sut.held


def test_all_pass_at_once_that_may() -> None:
    """When room becomes free as many small newcomers pass as fit, not the first 32 and the others some time."""
    sut = GateWorld()
    for name, count in (("a", 30), ("gone", 56)):
        sut.call(name, count)
    sut.call("a2", blocks("two", 9), program="a", thread="two")
    sut.call("first", 60)
    for number in range(40):
        sut.call(f"small{number}", 0)
    assert 41 == len(sut.held)
    sut.end("gone")
    sut.over("gone")

    assert ["first"] == sut.held


def test_who_waits_anew_has_not_waited() -> None:
    """A program whose call is aborted is the first no more; with its next call it is the first anew."""
    sut = GateWorld()
    sut.compute()
    for number in range(3):
        sut.call(f"a{number}", 19)
    sut.call("first", 89)
    sut.wait(10 / 3 * POOL_MS)
    sut.abort("first")
    sut.call("again", 89, program="first")
    sut.call("small", 3)

    assert "small" in sut.passed


def test_residents_do_not_pay() -> None:
    """What a resident computes again is not what visits cost, and it is never held for it."""
    sut = beside_a_resident()
    sut.end("a", 60)
    sut.call("b", 35)
    sut.call("c", 0)
    sut.end("b")
    for number in range(2):
        sut.cache.evict(blocks("a", 60))
        sut.call(f"a{number}", 60, program="a")
        sut.end(f"a{number}", 60)
    sut.call("d", 35)

    assert ["a", "b", "c", "a0", "a1", "d"] == sut.passed


def test_computing_again_costs_nothing_before_its_time_is_known() -> None:
    """While no prompt was measured there is nothing to reckon with."""
    sut = GateWorld(gate=AnyVisitor)
    sut.call("a", 59)
    sut.call("b", 35)
    sut.end("b", 36)
    for _ in range(100):
        visit_again(sut)

    assert [] == sut.held


@pytest.mark.parametrize(("others", "passes"), [(LOOKED_AT - 1, True), (LOOKED_AT, False)])
def test_so_many_are_looked_at(others: int, *, passes: bool) -> None:
    """Of the small calls the first 32 are looked at for one that may visit."""
    sut = beside_a_resident()
    for number in range(others):
        sut.call(f"too large for what is left {number}", 90)
    sut.call("small", 9, level_ms=1.0)

    assert passes == ("small" in sut.passed)


def test_large_calls_hide_nobody() -> None:
    """However many large calls are held, a small one behind them may visit."""
    sut = GateWorld(320)
    sut.compute()
    sut.call("a", 229)
    for number in range(10 * LOOKED_AT):
        sut.call(f"large{number}", 89)
    sut.call("small", 9, level_ms=1.0)

    assert "small" in sut.passed


def test_all_that_may_visit_do_so_at_once() -> None:
    """Every one of those looked at passes, as far as they fit beside each other."""
    sut = beside_a_resident()
    sut.call("b", 30)
    sut.call("large", 90)
    for number in range(3):
        sut.call(f"c{number}", 9, level_ms=1.0)
    assert ["large", "c0", "c1", "c2"] == sut.held

    assert ["c0", "c1", "c2"] == sut.end("b")
    assert ["large"] == sut.held
    assert ["a"] == sut.residents
