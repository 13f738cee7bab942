"""A simulated engine with a tier of KV blocks in CPU memory, with times worked out by hand.

10 ms a step, 1 ms a prefill token, 2 a decode; 10 blocks of four tokens; a copy takes 1 ms, and 0.25 ms a block.
"""

from typing import Any

import pytest

from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.tier import Tier
from autellix.engine.simulation.timing import EngineLimits, EngineOptions, SwapTiming
from autellix.services.simulator.__main__ import main
from autellix.services.simulator.engines import calibration_of, options_of
from autellix.services.simulator.scenario import Scenario, ScenarioError
from tests.unit.test_simulation_engine import accounts, call, engine, rest, told

COPY = SwapTiming(block_ms=0.25, copy_ms=1)
A, B = list(range(100, 110)), list(range(200, 210))


def tiered(tier_tokens: int, **settings: Any) -> SimulatedEngine:
    """Return an idle engine of ten blocks with so large a tier."""
    return engine(kv_tokens=40, max_num_batched_tokens=100, tier_tokens=tier_tokens, swap=COPY, **settings)


def evicted(sut: SimulatedEngine) -> None:
    """Let a call of 32 tokens be there, then one of 36, so that the device holds one block of the first."""
    sut.add(call("a", 32, 1, keys=A), 0.0)
    sut.add(call("b", 36, 1, keys=B), 100.0)
    rest(sut)


def test_what_was_evicted_comes_back_by_a_copy() -> None:
    """Of 32 tokens the device has one block and the tier six more: 10 + 4 tokens + a copy of six blocks, 2.5 ms."""
    sut = tiered(400)
    evicted(sut)
    sut.add(call("again", 32, 1, keys=A), 200.0)
    happened = rest(sut)

    assert [(200.0, "Started", "again"), (216.5, "Ended", "again")] == told(happened)
    assert 28 == accounts(happened)["again"].cached_tokens
    assert (24, 2.5, 0) == (sut.counters.loaded_tokens, sut.counters.swap_ms, sut.counters.swaps)
    assert 32 + 36 + 4 == sut.counters.prefill_tokens


def test_without_a_tier_it_is_computed_again() -> None:
    """The same calls: the one block that is left, and 28 tokens to compute."""
    sut = tiered(0)
    evicted(sut)
    sut.add(call("again", 32, 1, keys=A), 200.0)
    happened = rest(sut)

    assert [(200.0, "Started", "again"), (238.0, "Ended", "again")] == told(happened)
    assert (4, 0) == (accounts(happened)["again"].cached_tokens, sut.counters.loaded_tokens)


def test_a_small_tier_forgets_the_longest_unused_from_the_end() -> None:
    """Twelve blocks: the nine of the later call, and three of the eight of the earlier one, its first."""
    sut = tiered(48)
    evicted(sut)
    sut.add(call("again", 32, 1, keys=A), 200.0)
    happened = rest(sut)

    # one block on the device, two from the tier (1.5 ms), 20 tokens to compute
    assert [(200.0, "Started", "again"), (231.5, "Ended", "again")] == told(happened)
    assert 12 == accounts(happened)["again"].cached_tokens
    assert 8 == sut.counters.loaded_tokens


def test_a_tier_of_the_size_of_the_device_holds_what_the_device_holds() -> None:
    """It has copies of what is on the device: the two are not one large cache."""
    sut = tiered(40)
    evicted(sut)
    sut.add(call("again", 32, 1, keys=A), 200.0)

    assert 4 == accounts(rest(sut))["again"].cached_tokens
    assert 0 == sut.counters.loaded_tokens


def test_what_is_on_the_device_is_not_copied() -> None:
    """A call whose blocks are all there needs no copy, whatever the tier has."""
    sut = tiered(400)
    sut.add(call("a", 32, 1, keys=A), 0.0)
    rest(sut)
    sut.add(call("again", 32, 1, keys=A), 100.0)

    assert [(100.0, "Started", "again"), (114.0, "Ended", "again")] == told(rest(sut))
    assert 0 == sut.counters.loaded_tokens


@pytest.mark.parametrize(("tier_tokens", "computed", "end_ms"), [(400, 1, 242.5), (0, 9, 249.0)])
def test_a_preempted_call_finds_its_blocks_in_the_tier(tier_tokens: int, computed: int, end_ms: float) -> None:
    """Of the 21 tokens of a call that was put out the first one took two blocks: a copy, 1.5 ms, or 8 ms to compute."""
    sut = tiered(tier_tokens)
    sut.add(call("first", 16, 13, keys=A), 0.0)
    sut.add(call("second", 16, 9, keys=B), 0.0)
    happened = rest(sut)

    assert [(98.0, "Preempted", "second"), (194.0, "Ended", "first"), (194.0, "Resumed", "second")] == told(happened)[
        2:5
    ]
    assert (end_ms, "Ended", "second") == told(happened)[5]
    assert 32 + computed == sut.counters.prefill_tokens


def test_tier_evicts_in_order_of_use() -> None:
    """A use counts for all blocks of a call, the first most; what is not there cannot be used."""
    sut = Tier(4)
    sut.store([1, 2])
    sut.store([3, 4])
    sut.used([1, 2, 9])
    sut.store([5, 6])
    assert (2, 0, 2) == (sut.found([1, 2], 0, 2), sut.found([3, 4], 0, 2), sut.found([5, 6], 0, 2))
    sut.store([7])

    assert (1, 0) == (sut.found([1, 2], 0, 2), sut.found([1, 2], 1, 2))
    assert 4 == len(sut)


def test_found_ends_at_the_first_that_is_missing() -> None:
    """Blocks behind a gap, and from `most` on, do not count."""
    sut = Tier(10)
    sut.store([1, 2, 4])

    assert (2, 1, 0, 1) == (
        sut.found([1, 2, 3, 4], 0, 4), sut.found([1, 2, 3, 4], 0, 1), sut.found([1, 2], 2, 1), sut.found([3, 4], 1, 2)
    )  # fmt: skip


def test_a_tier_needs_to_know_how_long_a_copy_takes() -> None:
    """Without a timing, as for a CPU that has no device memory apart, it is refused."""
    limits = EngineLimits(slots=1, kv_tokens=40, block_size=4, max_num_batched_tokens=10, max_model_len=40)
    with pytest.raises(ValueError, match="a CPU tier needs a swap timing"):
        EngineOptions(limits=limits, tier_tokens=40)
    with pytest.raises(ValueError, match="needs the prefix cache"):
        EngineOptions(limits=limits, tier_tokens=40, swap=COPY, prefix_cache=False)


def test_a_scenario_has_a_tier() -> None:
    """`kv_tier_tokens` is the engine's; the copy is the calibration's, and one without any is refused."""
    scenario = Scenario(kv_tier_tokens=800_000)
    calibration = calibration_of(scenario)
    options = options_of(scenario, calibration)
    assert (800_000, calibration.swap["bulk"]) == (options.tier_tokens, options.swap)
    cpu = Scenario(kv_tier_tokens=1, calibration="cpu-tiny")

    with pytest.raises(ScenarioError, match="a CPU tier needs a swap timing"):
        options_of(cpu, calibration_of(cpu))


def test_the_command_has_an_option_for_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With `autellix sim run --kv-tier TOKENS` it says how many tokens were copied back; without it, nothing."""
    few = ["autellix sim", "run", "--workload", "bfcl", "--programs", "4", "--set", "overrides.engine.kv_tokens=20000"]
    monkeypatch.setattr("sys.argv", [*few, "--kv-tier", "40000", "--set", "max_context_tokens=15000"])
    assert 0 == main()
    assert "tokens were copied back from CPU memory" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", [*few, "--set", "max_context_tokens=15000"])
    assert 0 == main()

    assert "copied back" not in capsys.readouterr().out
