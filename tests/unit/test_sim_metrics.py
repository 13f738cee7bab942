"""The numbers of a run, against numbers made by hand."""

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autellix.schemas.spread import Spread, spread
from autellix.services.simulator.results import ProgramRow, Result
from autellix.services.simulator.scenario import Scenario
from autellix.services.simulator.world import simulate

STEP = {"fixed_ms": 10.0, "prefill_token_ms": 1.0, "decoding_call_ms": 0.0, "context_token_ms": 0.0}
"""A step takes 10 ms, and 1 ms more for each token of a prompt."""


def call(number: int, *parents: int, prompt: int, output: int, interrupt_s: float | None = None) -> dict[str, Any]:
    """Return one call that shares nothing with others, as a trace has it."""
    nothing = {"shared_prefix_tokens": 0, "system_tokens": 0}
    lengths = {"prompt_tokens": prompt, "output_tokens": output}
    return {"id": number, "parents": parents, "interrupt_s": interrupt_s, **lengths, **nothing}


def run(folder: Path, *programs: list[dict[str, Any]], **values: Any) -> Result:
    """Return the result of programs that arrive at once, one engine, in the order of arrival."""
    lines = [{"program_id": f"p{number}", "calls": calls} for number, calls in enumerate(programs)]
    path = folder / "made.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(map(msgspec.json.encode, lines))))
    return simulate(
        Scenario(
            workload=str(path),
            programs=len(programs),
            rate_per_s=None,
            overrides={"step": STEP, **values.pop("overrides", {})},
            measure_from=0.0,
            measure_to=1.0,
            keep_calls=True,
            **values,
        )
    )


def only_row(result: Result) -> ProgramRow:
    """Return the one program of a result."""
    (row,) = result.programs
    return row


def test_two_calls_of_one_program(tmp_path: Path) -> None:
    """A first step computes the prompt and one token, each later one a token; the interrupt is no response."""
    result = run(tmp_path, [call(0, prompt=20, output=3), call(1, 0, prompt=30, output=2, interrupt_s=2.0)])
    row = only_row(result)
    first_ms, second_ms = 30 + 2 * 10, 40 + 10

    assert (0.0, 2000.0) == (row.arrived_at_ms, row.interrupts_ms)
    assert pytest.approx(first_ms + second_ms) == row.response_ms
    assert pytest.approx(first_ms + 2000 + second_ms) == row.jct_ms == result.summary.virtual_ms
    assert pytest.approx((first_ms + second_ms) / 5) == row.ms_per_token
    assert pytest.approx((100.0, 100.0)) == (row.service_ms, row.path_service_ms)
    assert (0.0, 0.0, 0.0) == (row.wait_ms, row.path_wait_ms, row.wait_share)
    assert (2, 50, 0, 5) == (row.calls, row.prompt_tokens, row.cached_tokens, row.output_tokens)
    assert pytest.approx([0.0, 2050.0]) == [each.submitted_at_ms for each in result.calls]
    assert pytest.approx([50.0, 2100.0]) == [each.ended_at_ms for each in result.calls]
    assert pytest.approx(5 / 2.1) == result.summary.output_tokens_per_s
    assert pytest.approx(1 / 2.1) == result.summary.programs_per_s


def test_waiting_for_a_slot(tmp_path: Path) -> None:
    """With one slot the second of two equal programs waits for as long as the first one runs."""
    programs = [call(0, prompt=20, output=3)], [call(0, prompt=20, output=3)]
    result = run(tmp_path, *programs, policy="fcfs", overrides={"engine": {"slots": 1}})

    assert [0.0, pytest.approx(50.0)] == sorted(row.wait_ms for row in result.programs)
    assert pytest.approx([50.0, 100.0]) == sorted(row.response_ms for row in result.programs)
    assert [0.0, pytest.approx(0.5)] == sorted(row.wait_share for row in result.programs)
    assert Spread(mean=25.0, p50=0.0, p95=50.0, p99=50.0) == result.summary.wait_ms


def test_the_path_that_determined_the_end(tmp_path: Path) -> None:
    """Of two parents the one that ended last counts: its interrupt is left out, the other's is not there."""
    fork = [
        call(0, prompt=10, output=1),  # 20 ms
        call(1, 0, prompt=10, output=1, interrupt_s=5.0),  # 20 ms, ends at 5,040
        call(2, 0, prompt=10, output=101, interrupt_s=1.0),  # 1,020 ms, ends at 2,040
        call(3, 1, 2, prompt=10, output=1, interrupt_s=0.5),  # 20 ms, ends at 5,560
    ]
    row = only_row(run(tmp_path, fork))

    assert pytest.approx(5560.0) == row.jct_ms
    assert 5500.0 == row.interrupts_ms
    assert pytest.approx(60.0) == row.response_ms


def test_a_side_branch_does_not_count(tmp_path: Path) -> None:
    """Interrupts beside the path that ended last are not taken off."""
    fork = [
        call(0, prompt=10, output=1),
        call(1, 0, prompt=10, output=1, interrupt_s=5.0),
        call(2, 0, prompt=10, output=901, interrupt_s=1.0),
    ]
    row = only_row(run(tmp_path, fork, interrupt_cap_s=2.0))

    assert 1000.0 == row.interrupts_ms
    assert pytest.approx(20 + 20 + 9000 + 10) == row.response_ms  # one of its steps also computes the other's prompt


def test_interrupts_that_are_unknown_or_long(tmp_path: Path) -> None:
    """An unknown interrupt has the stated length, a long one is capped, and before the first call there is none."""
    chain = [
        call(0, prompt=10, output=1),
        call(1, 0, prompt=10, output=1),
        call(2, 1, prompt=10, output=1, interrupt_s=999.0),
    ]
    row = only_row(run(tmp_path, chain, interrupt_unknown_s=0.25, interrupt_cap_s=7.0))

    assert 7250.0 == row.interrupts_ms


def test_hits_are_counted(tmp_path: Path) -> None:
    """A second call that continues the first finds its whole blocks in the cache."""
    first = call(0, prompt=32, output=17)
    second = {**call(1, 0, prompt=60, output=1, interrupt_s=0.0), "shared_prefix_tokens": 49}
    cached, computed = (run(tmp_path, [first, second], prefix_cache=on) for on in (True, False))

    assert [48, 0] == [only_row(result).cached_tokens for result in (cached, computed)]
    assert pytest.approx(48 / 92) == cached.summary.prefix_hit_rate
    assert pytest.approx(48.0) == only_row(computed).response_ms - only_row(cached).response_ms


def test_percentiles_are_values_that_occur() -> None:
    """A percentile is the smallest value that so many do not exceed; of nothing there is none."""
    assert Spread(mean=50.5, p50=50, p95=95, p99=99) == spread(range(100, 0, -1))
    assert Spread(mean=3.0, p50=3.0, p95=3.0, p99=3.0) == spread([3.0])
    assert spread([]) is None
