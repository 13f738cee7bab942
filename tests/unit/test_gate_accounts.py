"""What the gate tells, what it forgets, and what becomes of those who leave without having passed."""

import pytest

from autellix.engine.policy.gate import LONG_GONE_MS, Gate
from autellix.engine.policy.gate_state import ANSWER_TOKENS
from autellix.engine.policy.pressure import Hold, Turnover
from autellix.schemas.ids import CallId
from tests.unit.gate_world import POOL_MS, GateWorld, NoVisits, blocks


def pressed() -> GateWorld:
    """Return a gate with T_pool known, a resident of 60 blocks, and two programs that are held."""
    sut = GateWorld(gate=NoVisits)
    sut.compute()
    sut.call("a", 59)
    sut.wait(100.0)
    sut.call("b", 39, level_ms=1.0)
    sut.call("c", 49, level_ms=2.0)
    return sut


def test_promotion() -> None:
    """A held call that is promoted goes before those that it was behind."""
    sut = pressed()
    sut.rerank("c", 0.0)

    assert ["c", "b"] == sut.held
    assert ["c", "b"] == sut.end("a", 0)


def test_a_clients_priority_comes_first() -> None:
    """As in the queues: the smaller number goes before every call of a larger one."""
    sut = pressed()
    sut.call("d", 39, level_ms=9.0, priority=-1)

    assert ["d", "b", "c"] == sut.held


def test_why_held() -> None:
    """It is said how many other programs go first, what its own wants that nobody claims, and what there is."""
    sut = pressed()
    sut.call("b2", blocks("b", 44), program="b", thread="two", level_ms=3.0)
    hold = sut.gate.why_held(CallId("b2"))

    assert Hold("plas", programs_ahead=1, wanted_tokens=(44 + 2) * 256, free_tokens=30 * 256) == hold
    assert "held: 1 program ahead by plas, 12k of 8k tokens free" == str(hold)
    assert "held: 0 programs ahead by plas, 12k of 8k tokens free" == str(sut.gate.why_held(CallId("b")))


def test_nothing_is_free_when_residents_have_outgrown_the_room() -> None:
    """What is missing is not told as less than nothing."""
    sut = pressed()
    sut.call("a2", 95, program="a", thread="two")

    assert 0 == sut.gate.why_held(CallId("b")).free_tokens


def test_how_long_it_was_held() -> None:
    """From its arrival until it passed, or until now; a call that passes at once is not held."""
    sut = pressed()
    assert (False, True) == (sut.gate.is_held(CallId("a")), sut.gate.is_held(CallId("b")))
    sut.wait(50.0)
    assert 50.0 == sut.gate.held_ms(CallId("b"), sut.now_ms)
    sut.end("a")
    sut.over("a")
    sut.wait(10.0)

    assert (50.0, False) == (sut.gate.held_ms(CallId("b"), sut.now_ms), sut.gate.is_held(CallId("b")))
    sut.call("b2", 39, program="b", thread="two")
    assert 0.0 == sut.gate.held_ms(CallId("b2"), sut.now_ms)


def test_a_held_call_that_is_aborted_leaves_nothing() -> None:
    """Who was behind it is first then, and its program has what it had before."""
    sut = pressed()
    assert [] == sut.abort("b")
    assert ["c"] == sut.held
    sut.end("a")
    assert ["c"] == sut.over("a")
    sut.end("c", 0)
    sut.over("b")
    sut.over("c")

    assert 0 == sut.used
    assert not sut.gate._programs


def test_a_passed_call_that_is_aborted_leaves_what_it_computed() -> None:
    """Of a prompt of which half was computed that half is kept, and the rest is not claimed any more."""
    sut = GateWorld()
    sut.call("a", 40)
    sut.end("a", 20)

    assert 20 == sut.used
    assert ["a"] == sut.residents


def test_who_is_over_gives_up_what_no_other_had() -> None:
    """What a live program had or asked for stays, and the first prompt, orphaned; the rest is evicted at once."""
    sut = GateWorld(gate=NoVisits)
    sut.call("a1", 10, program="a")
    sut.end("a1", 20)
    sut.call("a2", 60, program="a")
    sut.call("b", blocks("b", 70, after=blocks("a", 30)))
    assert ["b"] == sut.held
    sut.abort("b")
    sut.end("a2", 65)
    sut.over("a")
    assert set(blocks("a", 30)) == sut.cache.there == set(sut.cache.exposed)
    sut.over("b")

    assert blocks("a", 30) == sut.cache.orphaned


def test_it_is_over_when_its_last_call_has_left() -> None:
    """What its calls in flight need stays until they have left; then its first prompt does, orphaned."""
    sut = GateWorld()
    sut.call("a1", 10, program="a")
    sut.call("a2", 20, program="a", thread="two")
    sut.end("a1")
    sut.over("a")
    assert ["a"] == sut.residents
    sut.end("a2")

    assert (0, []) == (sut.used, sut.residents)
    assert blocks("a", 10) == sut.cache.orphaned
    assert set(blocks("a", 10)) == sut.cache.there


@pytest.mark.parametrize(("away_ms", "there"), [(LONG_GONE_MS - 1.0, ["b", "a", "c"]), (LONG_GONE_MS, ["b", "c"])])
def test_who_is_long_gone_is_forgotten(away_ms: float, there: list[str]) -> None:
    """A program without a call for an hour is forgotten when another comes, if nobody told of its end."""
    sut = GateWorld()
    sut.call("b", 10)
    sut.call("a", 10)
    sut.end("a")
    sut.end("b")
    sut.call("b again", 10, program="b")
    sut.wait(away_ms)
    sut.end("b again")
    sut.call("c", 10)

    assert sorted(there) == sorted(sut.gate._programs)


def test_over_and_unknown() -> None:
    """That a program is over which the gate never saw, or has forgotten, changes nothing."""
    sut = pressed()
    sut.over("never seen")

    assert (["a"], ["b", "c"]) == (sut.residents, sut.held)


def test_an_id_may_come_again() -> None:
    """A program that has the id of one that is over is a new one, without its past."""
    sut = GateWorld(gate=NoVisits)
    sut.compute()
    sut.call("first", 79, program="a")
    sut.end("first")
    sut.over("a")
    sut.call("b", 19)
    sut.call("second", 19, program="a")

    assert ["first", "b", "second"] == sut.passed
    assert 20 + 20 == sut.used


def test_pressure() -> None:
    """It counts programs, not calls, and what the held ones wanted when they came, blocks that they share for each."""
    sut = pressed()
    sut.call("b2", 39, program="b", thread="two", level_ms=3.0)
    pressure = sut.gate.pressure(sut.now_ms)

    assert (1, 2) == (pressure.programs_resident, pressure.programs_held)
    assert ((39 + 2) + (49 + 1)) * 256 == pressure.held_tokens
    assert pytest.approx(POOL_MS) == pressure.pool_ms
    assert pressure.expected_wait_ms > 0


def test_no_pressure() -> None:
    """With nobody held there is nothing to wait for, and T_pool is 0 while it is unknown."""
    sut = GateWorld()
    sut.call("a", 59)

    assert (1, 0, 0, 0.0, 0.0) == sut.gate.pressure(0.0)


def test_expected_wait() -> None:
    """Who wants as many tokens as were let in while is looked back on waits that long, twice as many twice as long."""
    turnover = Turnover()
    for second in range(100):
        turnover.let_in(10, 1000.0 * second, memory_ms=10_000.0)
    waits_ms = [turnover.wait_ms(tokens, 99_000.0, memory_ms=10_000.0) for tokens in (0, 100, 200)]

    assert [0.0, 10_000.0, 20_000.0] == pytest.approx(waits_ms, rel=0.06)


def test_expected_wait_has_an_end() -> None:
    """When nobody was let in for long it is a hundred times what is looked back on; unknown, it is 0."""
    turnover = Turnover()
    turnover.let_in(10, 0.0, memory_ms=1000.0)

    assert 100_000.0 == turnover.wait_ms(50, 1e9, memory_ms=1000.0)
    assert 0.0 == turnover.wait_ms(50, 1e9, memory_ms=float("inf"))


def test_expected_answers() -> None:
    """What a call is expected to answer follows the latest answers, and so does what a new program needs."""
    sut = GateWorld()
    for number in range(200):
        sut.call(f"a{number}", 0, program="a")
        sut.queued.pop(f"a{number}")
        sut.gate.left(CallId(f"a{number}"), [["answer"]], 4 * ANSWER_TOKENS, sut.now_ms)
    sut.call("b", 10)

    assert 1 + (10 + 4) == sut.used


@pytest.mark.parametrize(("answers", "expected"), [(1, 640), (3, 832), (31, 1000)])
def test_the_first_answers_count_fully(answers: int, expected: int) -> None:
    """What is expected before anything is known is forgotten with the first answers, not with the hundredth."""
    sut = GateWorld()
    for number in range(answers):
        sut.call(f"a{number}", 0, program="a")
        sut.queued.pop(f"a{number}")
        sut.gate.left(CallId(f"a{number}"), [["answer"]], 1024, sut.now_ms)

    assert expected == round(sut.gate._answer_tokens)


def test_what_is_claimed_again_is_kept() -> None:
    """What a program had before it lost its place is exposed no more when it is a resident again, in all threads."""
    sut = GateWorld(gate=NoVisits)
    sut.compute()
    turn_ms = Gate.TURN_POOLS[0] * POOL_MS
    for after_ms in (0.0, turn_ms - POOL_MS / 2):
        sut.wait(after_ms)
        for thread in ("one", "two"):
            sut.call(f"{thread} {after_ms}", blocks(thread, 10), program="a", thread=thread)
            sut.end(f"{thread} {after_ms}", blocks(thread, 11))
    sut.call("b", 80)
    sut.wait(POOL_MS / 2)
    sut.open()
    assert ["b"] == sut.residents
    assert set(blocks("one", 11) + blocks("two", 11)) <= set(sut.cache.exposed)
    sut.end("b")
    sut.over("b")
    sut.call("again", blocks("again", 12, after=blocks("one", 11)), program="a", thread="one")

    assert not set(blocks("two", 11)) & set(sut.cache.exposed)
