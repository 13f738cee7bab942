"""What `make calibrate` makes of its measurements: the fit, and the file."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from calibrate import as_toml, calibration, quality, table
from rich.console import Console
from step_fit import Point, Work, fit, r_squared

from autellix.engine.simulation.calibration import load_calibration

WORKS = [Work(*work) for work in product((0, 16, 512), (0, 1, 64), (0, 100, 4000))]
CONFIG = SimpleNamespace(
    cache_config=SimpleNamespace(num_gpu_blocks=10, block_size=16),
    scheduler_config=SimpleNamespace(max_num_seqs=4, max_num_batched_tokens=32),
    model_config=SimpleNamespace(max_model_len=128),
)


def points(a: float, b: float, c: float, d: float) -> list[Point]:
    """Return steps that take exactly what the coefficients say, in two passes of three."""
    times = [a + b * work.prefill_tokens + c * work.decoding_calls + d * work.context_tokens for work in WORKS]
    return [Point(work, np.full((2, 3), ms)) for work, ms in zip(WORKS, times, strict=True)]


@pytest.mark.parametrize("coefficients", [(5.0, 0.1, 0.2, 0.001), (5.0, 0.0, 0.2, 0.0), (1.0, 0.0, 0.0, 0.0)])
def test_fit_finds_what_made_the_steps(coefficients: tuple[float, float, float, float]) -> None:
    """Steps that are exactly linear give their coefficients back, those that are nothing included."""
    found = fit(points(*coefficients))

    assert pytest.approx(coefficients, abs=1e-9) == list(found)


def test_no_coefficient_is_negative() -> None:
    """Steps that get shorter with context are fitted without context, as well as the other terms can."""
    measured = points(100.0, 0.1, 0.2, -0.001)

    found = fit(measured)

    assert found[3] == 0
    assert all(found >= 0)
    assert 0 < r_squared(measured, found) < 1


def test_a_short_step_weighs_as_much_as_a_long_one() -> None:
    """Errors count relative to the step: of 1 ms and 2 ms for the same work, the short one is missed by less."""
    # (x / 1 - 1)^2 + (x / 2 - 1)^2 is least at x = 1.2
    two = [Point(Work(0, 0, 0), np.full((1, 1), ms)) for ms in (1.0, 2.0)]

    assert pytest.approx([1.2, 0, 0, 0]) == list(fit(two))


def test_a_busy_pass_does_not_count() -> None:
    """A batch takes what its median step took in its best pass."""
    assert Point(Work(0, 0, 0), np.array([[9.0, 9.0, 9.0], [1.0, 2.0, 50.0]])).ms == 2.0


def test_the_file_says_what_was_measured(tmp_path: Path) -> None:
    """The file is read back as the calibration it was written from."""
    file = tmp_path / "measured.toml"
    made = calibration(CONFIG, (5.0, 0.1, 0.2, 0.000087), "Measured in a test.")

    file.write_text(as_toml(made))
    read = load_calibration(str(file))

    assert made.step == read.step
    assert made.engine == read.engine
    assert made.source == read.source.strip()


def test_the_worst_point_is_named() -> None:
    """What is said of the fit names how far it is off, and where."""
    measured = [*points(5.0, 0.1, 0.2, 0.001), Point(Work(2048, 7, 0), np.full((2, 3), 1000.0))]

    said = quality(measured, (5.0, 0.1, 0.2, 0.001))

    assert "-79%, for 2048 tokens of prefill in one prompt beside 7 decoding calls" in said


def test_the_table_has_a_row_a_batch() -> None:
    """Every batch is shown with what it took and what the fit says."""
    console = Console(width=120, record=True, quiet=True)
    measured = points(5.0, 0.1, 0.2, 0.001)

    shown = table(measured, (5.0, 0.1, 0.2, 0.001))
    console.print(shown)

    assert len(WORKS) == shown.row_count
