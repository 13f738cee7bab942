"""The numbers of a run, by examples computed by hand and by what must hold for any."""

from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.client.bench.load import Load
from autellix.client.bench.measures import ProgramRow, Run, summarize, sustained_tokens_per_s
from autellix.schemas.spread import Spread, percentile, spread

LOAD = Load(workload="bfcl", programs=1)
VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


def row(number: int, **fields: Any) -> ProgramRow:
    """Return a program that arrived in second `number`, took 4 s and away 1 s of them, for 30 tokens."""
    defaults = {
        "name": f"p{number}",
        "trace": "bfcl",
        "calls": 2,
        "arrived_s": float(number),
        "makespan_s": 4.0,
        "response_s": 3.0,
        "waited_s": 1.0,
        "queued_s": 0.75,
        "idle_s": 2.0,
        "prompt_tokens": 100,
        "cached_tokens": 40,
        "output_tokens": 30,
    }
    return ProgramRow(**{**defaults, **fields})


def run_of(*rows: ProgramRow) -> Run:
    """Return a run of these programs."""
    return Run(load=LOAD, system="s", started_at="2026-01-01T00:00:00+00:00", took_s=9.0, idle=None, rows=[*rows])


def same(value: float) -> Spread:
    """Return the spread of programs that are all alike."""
    return Spread(mean=value, p50=value, p95=value, p99=value)


def test_numbers_of_programs_that_are_alike() -> None:
    """Ten programs, one a second: each number is what a hand makes of it, over the middle eight."""
    summary = summarize(run_of(*(row(number) for number in range(10))))

    assert (8, 8, 0, 0) == (summary.measured, summary.finished, summary.errors, summary.short_answers)
    assert same(100.0) == summary.token_latency_ms
    assert (same(4.0), same(2.0), same(0.25)) == (summary.completion_s, summary.slowdown, summary.waiting_share)
    assert (30.0, 1.0, 0.4) == (summary.output_tokens_per_s, summary.programs_per_s, summary.hit_rate)


def test_token_latency_is_without_interrupts_and_over_all_tokens() -> None:
    """The paper's measure: 3 s of response over 30 tokens, and 9 s over 10, are 100 and 900 ms a token."""
    summary = summarize(run_of(row(0), row(1, response_s=9.0, output_tokens=10)), measure_from=0.0, measure_to=1.0)

    assert Spread(mean=500.0, p50=100.0, p95=900.0, p99=900.0) == summary.token_latency_ms


def full(*arrived_s: float, **fields: Any) -> Run:
    """Return a closed loop of two programs at a time, of 4 s each."""
    rows = [row(number, arrived_s=at, **fields) for number, at in enumerate(arrived_s)]
    load = msgspec.structs.replace(LOAD, programs=len(rows), rate_per_s=None, live_programs=2)
    return msgspec.structs.replace(run_of(*rows), load=load)


def test_what_a_closed_loop_sustains() -> None:
    """Two programs at a time of 4 s: 30 tokens each two seconds, whatever the first two and the draining end do."""
    steady = full(0, 0, 3, 4, 7, 8, 11, 12, 15, 16)
    slow_end = msgspec.structs.replace(steady, rows=[*steady.rows[:-1], row(9, arrived_s=16.0, makespan_s=99.0)])

    assert 5 * 30 / 9 == sustained_tokens_per_s(steady)  # of the ends at 4, 4, 7, 8, 11, 12, 15 and 16, those from 7 on
    assert 5 * 30 / 9 == sustained_tokens_per_s(slow_end)


def test_what_was_never_full_sustains_nothing() -> None:
    """Too few programs, or only failed ones, say nothing."""
    assert sustained_tokens_per_s(full(0, 0)) is None
    assert sustained_tokens_per_s(full(0, 0, 4)) is None
    assert sustained_tokens_per_s(full(0, 0, 4, 4, 8, 8, error="refused")) is None
    assert sustained_tokens_per_s(run_of()) is None


def test_failed_programs_are_counted_and_not_measured() -> None:
    """A program that failed counts as an error, wherever in the run, and adds to no other number."""
    rows = [row(number) for number in range(10)]
    rows[0] = row(0, error="refused", output_tokens=0)
    rows[5] = row(5, error="refused", makespan_s=0.1, response_s=0.1, output_tokens=0, cached_tokens=None)
    summary = summarize(run_of(*rows))

    assert (8, 7, 2) == (summary.measured, summary.finished, summary.errors)
    assert (same(4.0), 0.4) == (summary.completion_s, summary.hit_rate)


def test_what_is_not_told_is_none() -> None:
    """No program that finished, no idle system and a server that does not tell of its cache: None, not zero."""
    nothing = summarize(run_of())
    silent = summarize(run_of(row(0, cached_tokens=None, idle_s=None, queued_s=None)))

    assert (0, 0, 0) == (nothing.measured, nothing.finished, nothing.errors)
    assert {None} == {nothing.token_latency_ms, nothing.programs_per_s, nothing.output_tokens_per_s, nothing.hit_rate}
    assert {None} == {silent.hit_rate, silent.slowdown, silent.waiting_share, silent.programs_per_s}
    assert same(100.0) == silent.token_latency_ms


def test_one_program_that_does_not_tell_hides_the_hit_rate() -> None:
    """A hit rate over some of the programs only would be another number."""
    summary = summarize(run_of(row(0), row(1, cached_tokens=None)), measure_from=0.0, measure_to=1.0)

    assert summary.hit_rate is None


def test_rates_are_between_ends() -> None:
    """Ends after 1, 3 and 5 s: two programs came to their end in the 4 s that follow the first end."""
    rows = [row(0, makespan_s=1.0), row(0, makespan_s=5.0, output_tokens=10), row(0, makespan_s=3.0, output_tokens=30)]
    summary = summarize(run_of(*rows), measure_from=0.0, measure_to=1.0)

    assert (10.0, 0.5) == (summary.output_tokens_per_s, summary.programs_per_s)


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 10.0), (10, 10.0), (11, 20.0), (50, 50.0), (95, 100.0), (100, 100.0)]
)
def test_percentile_by_hand(percent: int, value: float) -> None:
    """Of ten values the 50th percentile is the fifth, and the 95th the tenth."""
    assert value == percentile([10.0 * n for n in range(1, 11)], percent)


@given(VALUES, st.integers(1, 100))
def test_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    """Enough values are at most the percentile, and too few are below it."""
    found = percentile(sorted(values), percent)

    assert sum(value <= found for value in values) >= ceil(percent * len(values) / 100)
    assert sum(value < found for value in values) < percent * len(values) / 100


@given(VALUES)
def test_spread_is_in_order(values: list[float]) -> None:
    """Percentiles ascend, and the mean is between the least and the greatest value."""
    seen = spread(values)

    assert seen is not None
    assert seen.p50 <= seen.p95 <= seen.p99 <= max(values)
    assert min(values) <= seen.mean * (1 + 1e-9) + 1e-9
    assert seen.mean <= max(values) * (1 + 1e-9) + 1e-9


@given(st.lists(st.booleans(), max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_every_program_is_counted_once(failed: list[bool], one: float, other: float) -> None:
    """Whatever part is measured, errors are those of the whole run, and a run with programs measures one at least."""
    rows = [row(number, error="refused" if each else "") for number, each in enumerate(failed)]
    summary = summarize(run_of(*rows), measure_from=min(one, other), measure_to=max(one, other))

    assert sum(failed) == summary.errors
    assert bool(failed) <= summary.measured <= len(failed)
    assert summary.finished <= summary.measured


def test_run_survives_json() -> None:
    """A run that is written and read is the same run."""
    run = run_of(row(0), row(1, cached_tokens=None, error="refused"))

    assert run == msgspec.json.decode(msgspec.json.encode(run), type=Run)
