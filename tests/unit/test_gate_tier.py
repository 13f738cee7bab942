"""The gate with a tier of KV in CPU memory: residents fit there, and what runs at once fits on the device."""

import pytest

from autellix.engine.policy.device import RUN_UP_TO
from autellix.engine.policy.gate import Gate
from autellix.engine.policy.gate_state import ANSWER_TOKENS
from autellix.engine.policy.plain_gate import PlainGate
from tests.unit.gate_world import POOL_MS, GateWorld, NoVisits, blocks


def tiered(tier: int = 300, gate: type[Gate] = NoVisits) -> GateWorld:
    """Return a gate before a device of 100 blocks and a tier; T_pool is known."""
    sut = GateWorld(gate=gate, tier=tier)
    sut.compute()
    return sut


@pytest.mark.parametrize("tier", [0, 50, 100])
def test_a_tier_no_larger_than_the_device_changes_nothing(tier: int) -> None:
    """It holds copies of what is on the device: as much fits as without it."""
    sut = tiered(tier)
    sut.call("a", 59)
    sut.call("b", 29)
    sut.call("c", 0)

    assert (["a", "b"], ["c"]) == (sut.residents, sut.held)
    assert "held: 0 programs ahead by plas, 0k of 0k tokens free" == str(sut.gate.why_held(sut.queued["c"].call_id))
    assert POOL_MS == sut.gate.time.pool_ms


def test_residents_fit_into_the_tier() -> None:
    """Programs are let in up to 0.90 of the tier, and then one waits for room there."""
    sut = tiered()
    for name in "abcd":
        sut.call(name, 59)
        sut.end(name, 60)
    sut.call("e", 39)

    assert (list("abcd"), ["e"]) == (sut.residents, sut.held)
    assert 240 == sut.used
    assert "held: 0 programs ahead by plas, 10k of 8k tokens free in the CPU tier" == str(
        sut.gate.why_held(sut.queued["e"].call_id)
    )
    assert ["e"] == sut.over("a")


def test_what_runs_fits_on_the_device() -> None:
    """A resident's call that does not fit beside those that run is held, and passes when one of them has ended."""
    sut = tiered()
    sut.call("a", 59)
    sut.call("b", 30)
    assert (["a", "b"], ["a"]) == (sut.residents, sut.passed)
    assert "held: 0 programs ahead by plas, 8k of 8k tokens free on the device" == str(
        sut.gate.why_held(sut.queued["b"].call_id)
    )

    assert ["b"] == sut.end("a")


@pytest.mark.parametrize(("prompt", "passes"), [(29, True), (30, False)])
def test_runs_up_to_nine_tenths_of_the_device(prompt: int, *, passes: bool) -> None:
    """The call of 60 blocks leaves 30: what runs takes 0.90 at most."""
    sut = tiered()
    sut.call("a", 59)
    sut.call("b", prompt)

    assert passes == ("b" in sut.passed)
    assert RUN_UP_TO == 0.90


def test_what_runs_counts_each_block_once() -> None:
    """Two calls with a prompt in common run together though their sum is larger than the device."""
    sut = tiered()
    system = blocks("system", 60)
    sut.call("a", blocks("a", 70, after=system))
    sut.call("b", blocks("b", 70, after=system))

    assert ["a", "b"] == sut.passed


def test_a_call_larger_than_that_runs_alone() -> None:
    """When nothing runs any call passes; then none does before it has ended."""
    sut = tiered()
    sut.call("a", 98)
    sut.call("b", 0)
    assert (["a"], ["b"]) == (sut.passed, sut.held)

    assert ["b"] == sut.end("a")


def test_nobody_goes_before_a_large_call_that_waits_for_the_device() -> None:
    """Small calls of residents that rank behind it wait until it has passed: else they would keep it out for ever."""
    sut = tiered()
    sut.call("a", 49)
    sut.call("large", 79, level_ms=1.0)
    sut.call("b", 0, level_ms=1000.0)
    assert ["large", "b"] == sut.held
    assert 1 == sut.gate.why_held(sut.queued["b"].call_id).programs_ahead

    assert ["large", "b"] == sut.end("a")


def test_who_waits_for_the_device_does_not_wait_for_the_tier() -> None:
    """A resident's call passes when it fits on the device, whoever waits for room in the tier before it."""
    sut = tiered(200)
    sut.call("a", 59)
    sut.call("b", 89, level_ms=1.0)
    sut.call("first", 79)
    assert (["a", "b"], ["first", "b"]) == (sut.residents, sut.held)

    assert ["b"] == sut.end("a")


def test_a_resident_whose_turn_is_over_leaves_though_its_call_waits_for_the_device() -> None:
    """It has no call in flight, so it is at a boundary, and gives way to the first that waits for the tier."""
    sut = tiered(200)
    sut.call("a", 89)
    sut.call("b", 79, level_ms=2.0)
    sut.call("first", 79)
    assert ["first", "b"] == sut.held
    sut.wait(Gate.TURN_POOLS[0] * POOL_MS)

    assert ["a", "first"] == sut.residents
    assert ["b"] == [*set(sut.held) - {"first"}]
    assert 80 * ANSWER_TOKENS == sut.gate.pressure(sut.now_ms).held_tokens


@pytest.mark.parametrize("in_tier", [True, False])
def test_a_visit_pays_for_copies_what_a_copy_takes(*, in_tier: bool) -> None:
    """What a visitor had and the tier has is copied back: that costs little of what visits may cost."""
    sut = tiered(400, Gate)
    sut.gate.time.copied(1.0, 16)
    before = [sut.gate.time.token_ms, sut.gate.time.copy_token_ms]
    for name in "abcd":
        sut.call(name, 89)
        sut.end(name, 90)
    sut.call("v", 2)
    sut.end("v", 3)
    sut.cache.there.clear()
    if in_tier:
        sut.cache.tier.update(blocks("v", 3))
    spent_before = sut.gate._visits._budget._balance_ms
    sut.call("v2", blocks("v", 3), program="v")

    assert list("abcd") == sut.residents
    assert before[in_tier] * 3 * ANSWER_TOKENS == pytest.approx(spent_before - sut.gate._visits._budget._balance_ms)
    assert 1 / 16 == before[1] != before[0]


def test_the_plain_gate_has_a_tier_too() -> None:
    """Both gates budget on it."""
    sut = tiered(300, PlainGate)
    for name in "abc":
        sut.call(name, 59)
        sut.end(name, 60)

    assert list("abc") == sut.residents
