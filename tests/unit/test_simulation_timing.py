"""How long steps take: the grid of times, stretches in closed form, calibrations from files."""

from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.simulation.calibration import CalibrationError, load_calibration, shipped
from autellix.engine.simulation.stretch import Stretch
from autellix.engine.simulation.timing import EngineLimits, EngineOptions, SwapTiming, grid_after, on_grid

GOOD = """
name = "mine"
source = "made up"
[step]
fixed_ms = 9.4
prefill_token_ms = 0.1
decoding_call_ms = 0.05
context_token_ms = 0.0001
[engine]
slots = 4
kv_tokens = 4000
block_size = 16
max_num_batched_tokens = 128
max_model_len = 4000
[swap.bulk]
block_ms = 0.1
copy_ms = 0.05
"""

durations = st.floats(0, 1e4).map(on_grid)


@given(start_ms=durations, first_ms=st.floats(0.1, 100).map(on_grid), growth_ms=durations, at_ms=durations)
def test_a_stretch_is_the_sum_of_its_steps(start_ms: float, first_ms: float, growth_ms: float, at_ms: float) -> None:
    """Each end is that of adding step after step, and the number of steps until a time is the smallest that does."""
    stretch = Stretch(start_ms, first_ms, growth_ms / 1000, steps=40)
    stretch.growth_ms = on_grid(stretch.growth_ms)
    ends, end_ms = [], start_ms
    for step in range(40):
        end_ms += first_ms + step * stretch.growth_ms
        ends.append(end_ms)

    assert ends == [stretch.end_ms(steps) for steps in range(1, 41)]
    assert next((step for step, end in enumerate(ends, 1) if end >= at_ms), 41) == min(stretch.steps_until(at_ms), 41)
    assert sum(end <= at_ms for end in ends) == stretch.steps_over(at_ms)
    assert inf == stretch.steps_until(inf)


@given(ms=st.floats(0, 1e7))
def test_the_grid_is_fine(ms: float) -> None:
    """A time moves by less than a nanosecond, and never back when it is to come after."""
    assert abs(on_grid(ms) - ms) < 1e-6
    assert 0 <= grid_after(ms) - ms < 1e-6


def test_swaps_take_time_by_block_and_by_copy() -> None:
    """One copy for all, or one for so many blocks."""
    bulk, single = SwapTiming(block_ms=2, copy_ms=1), SwapTiming(block_ms=2, copy_ms=1, blocks_per_copy=1)

    assert (1, 11.0) == (bulk.copies(5), bulk.move_ms(5))
    assert (5, 15.0) == (single.copies(5), single.move_ms(5))


@pytest.mark.parametrize("name", shipped())
def test_shipped_calibrations_load(name: str) -> None:
    """Each is named as its file, says where it comes from, and makes an engine."""
    calibration = load_calibration(name)

    assert name == calibration.name
    assert len(calibration.source) > 40
    assert EngineOptions(limits=calibration.engine).limits.slots > 0


def test_a_file_of_ones_own_loads(tmp_path: Path) -> None:
    """A path is taken as one."""
    (tmp_path / "mine.toml").write_text(GOOD)

    assert 9.4 == load_calibration(str(tmp_path / "mine.toml")).step.fixed_ms


@pytest.mark.parametrize(
    ("good", "bad", "why"),
    [
        ("fixed_ms = 9.4", "fixed_ms = 0", r"> 0.*\$\.step\.fixed_ms"),
        ("fixed_ms = 9.4", 'fixed_ms = "fast"', r"\$\.step\.fixed_ms"),
        ("copy_ms = 0.05", "copy_ms = -1", r"\$\.swap"),
        ("slots = 4", "slots = 4\nspeed = 3", r"speed.*\$\.engine"),
        ("kv_tokens = 4000", "", r"kv_tokens.*\$\.engine"),
        ("max_num_batched_tokens = 128", "max_num_batched_tokens = 3", r"at least slots.*\$\.engine"),
        ("kv_tokens = 4000", "kv_tokens = 15", r"at least one block.*\$\.engine"),
        ("[step]", "[step", "line"),
    ],
)
def test_a_calibration_that_makes_no_sense_is_refused(tmp_path: Path, good: str, bad: str, why: str) -> None:
    """The refusal names the file and the key."""
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace(good, bad))

    with pytest.raises(CalibrationError, match=f"mine.toml: .*{why}"):
        load_calibration(str(file))


def test_an_unknown_calibration_is_refused_with_those_that_exist() -> None:
    """The text lists the shipped ones."""
    with pytest.raises(CalibrationError, match=r"h100\.toml.*a100-80gb-llama-3\.1-8b"):
        load_calibration("h100")


def test_swap_needs_its_timing() -> None:
    """Preemption by swap without a time to swap is refused."""
    limits = EngineLimits(slots=1, kv_tokens=16, block_size=16, max_num_batched_tokens=16, max_model_len=16)

    with pytest.raises(ValueError, match="needs a swap timing"):
        EngineOptions(limits=limits, preemption="swap")
