"""What a load replays: its programs depend on the seed alone, smaller as it says, others than those that warm up."""

from math import inf
from pathlib import Path

import msgspec
import pytest

from autellix.client.bench.load import Load, LoadError, Scale, programs_of, warm_up_of
from tests.client.bench.conftest import FORK, call, write_trace


def test_rate_does_not_change_the_programs() -> None:
    """The same programs come in the same order at any rate, and in a closed loop."""
    loads = [
        Load(workload="bfcl", programs=12, rate_per_s=2.0),
        Load(workload="bfcl", programs=12, rate_per_s=4.0),
        Load(workload="bfcl", programs=12, rate_per_s=None, live_programs=3),
    ]
    slow, fast, closed = (programs_of(load) for load in loads)

    assert [each.program for each in slow] == [each.program for each in fast] == [each.program for each in closed]
    assert [each.at_ms for each in slow] == [2 * each.at_ms for each in fast]
    assert [each.at_ms for each in closed] == [0.0] * 3 + [inf] * 9


def test_programs_are_made_smaller(tmp_path: Path) -> None:
    """Prompts and answers are divided, interrupts multiplied; what does not fit then is left out."""
    small = [call(0, prompt_tokens=800, output_tokens=40, system_tokens=400, interrupt_s=2.0)]
    large = [call(0, prompt_tokens=8000, output_tokens=40)]
    trace = write_trace(tmp_path / "t.jsonl.gz", small, large)
    scale = Scale(prompts=8, answers=4, interrupts=0.5)
    (arrival,) = programs_of(Load(workload=trace, programs=1, max_context_tokens=110, scale=scale))

    (only,) = arrival.program.calls
    assert (100, 10, 50, 1.0) == (only.prompt_tokens, only.output_tokens, only.system_tokens, only.interrupt_s)


def test_warm_up_is_of_other_programs() -> None:
    """The programs that warm up are drawn anew, and none without being asked for."""
    load = Load(workload="bfcl", programs=10)

    assert warm_up_of(load, 10) != programs_of(load)
    assert [] == warm_up_of(load, 0)


def test_nonsense_is_one_sentence(tmp_path: Path) -> None:
    """An unknown workload, and a bound that leaves nothing, are errors that a person understands."""
    trace = write_trace(tmp_path / "t.jsonl.gz", FORK)

    with pytest.raises(LoadError, match="'nosuch' is neither one of sharegpt"):
        programs_of(Load(workload="nosuch", programs=1))
    with pytest.raises(LoadError, match="every program is above"):
        programs_of(Load(workload=trace, programs=1, max_context_tokens=5))


@pytest.mark.parametrize(
    "wrong",
    [
        {"programs": 0},
        {"rate_per_s": 0},
        {"live_programs": 0},
        {"half": "third"},
        {"scale": {"prompts": 0}},
        {"scale": {"interrupt_cap_s": -1}},
        {"nosuch": 1},
    ],
)
def test_load_from_a_file_is_checked(wrong: dict[str, object]) -> None:
    """A load that is read is refused when a value makes no sense."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"workload": "bfcl", "programs": 1, **wrong}, Load)
