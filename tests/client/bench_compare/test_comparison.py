"""Ratios between systems from the runs of a suite, computed by hand."""

import msgspec
import pytest

from autellix.client.bench.comparison import makespan, outcome, ratios
from autellix.client.bench.measures import summarize
from autellix.client.bench.ratios import Ratio
from autellix.client.bench.schedule import visits
from tests.client.bench_compare.conftest import outcome_of, run_of, suite_of

LATENCIES = {
    (0.5, "ref", 1): 10.0,
    (1.0, "ref", 1): 40.0,
    (0.5, "new", 1): 10.0,
    (1.0, "new", 1): 20.0,
    (0.5, "ref", 2): 20.0,
    (1.0, "ref", 2): 80.0,
    (0.5, "new", 2): 10.0,
    (1.0, "new", 2): 20.0,
}


def test_latency_at_equal_load() -> None:
    """Runs of the same seed are divided by each other, then comes the mean over the seeds."""
    suite = suite_of(seeds=[1, 2])

    found = ratios(outcome_of(suite, LATENCIES), suite, "new", "ref")

    assert Ratio(0.75, 0.25) == found["latency at 0.5"]  # 10/10 and 10/20
    assert Ratio(0.375, 0.125) == found["latency at 1"]  # 20/40 and 20/80
    assert found["P99 latency at 1"] == found["latency at 1"]  # all programs of a run are alike


def test_rate_at_equal_latency() -> None:
    """At twice the reference's lightest latency, 20 ms, it does 3 programs/s of its 4, and the other its whole 4."""
    suite = suite_of(factors=[2.0])
    seed_1 = {key: latency for key, latency in LATENCIES.items() if key[2] == 1}

    found = ratios(outcome_of(suite, seed_1), suite, "new", "ref")["rate at 2x"]

    assert found
    assert pytest.approx(4 / 3) == found.mean
    assert ">" == found.sign


def test_every_seed_has_its_own_knee() -> None:
    """The latency at which rates are compared is that of the reference in the runs of the same seed."""
    suite = suite_of(seeds=[1, 2], factors=[2.0])
    latencies = LATENCIES | {(1.0, "new", 1): 40.0, (0.5, "new", 2): 20.0, (1.0, "new", 2): 160.0}

    found = ratios(outcome_of(suite, latencies), suite, "new", "ref")["rate at 2x"]

    assert found
    # seed 1: both at 3/s; seed 2, at 40 ms: the reference at 3/s, the other a third of the way from 2/s to 4/s
    assert pytest.approx((1 + (2 + 2 / 3) / 3) / 2) == found.mean
    assert "=" == found.sign


def test_what_was_not_measured_is_none() -> None:
    """A load without runs has no ratio, and neither has a system without any."""
    suite = suite_of(factors=[2.0])
    only_reference = {key: latency for key, latency in LATENCIES.items() if key[1] == "ref"}

    found = ratios(outcome_of(suite, only_reference), suite, "new", "ref")

    of_loads = [f"{name} at {load}" for name in ("latency", "P99 latency", "pace") for load in ("0.5", "1")]
    assert dict.fromkeys([*of_loads, "rate at 2x"]) == found


def test_programs_at_a_time_have_no_rates() -> None:
    """In a closed loop the rate is the system's own: throughput is compared instead."""
    suite = suite_of(workloads=[{"name": "bfcl", "live_programs": [8]}])
    latencies = {(8.0, "ref", 1): 10.0, (8.0, "new", 1): 20.0}

    found = ratios(outcome_of(suite, latencies, None), suite, "new", "ref")

    assert (
        dict.fromkeys(["latency at 8", "P99 latency at 8"], Ratio(2.0, 0.0))
        | {
            "tokens/s at 8": Ratio(1.0, 0.0),
            "makespan at 8": Ratio(1.2 / 1.1, 0.0),  # ten tokens each, the last begun after a second
            "pace at 8": Ratio(1.0, 0.0),
        }
        == found
    )


def test_programs_at_once_have_a_makespan() -> None:
    """Of a crowd it counts when the last one ended."""
    suite = suite_of(workloads=[{"name": "bfcl", "at_once": [100]}])
    latencies = {(100.0, "ref", 1): 1000.0, (100.0, "new", 1): 2000.0}  # ten tokens each, the last begun after a second

    found = ratios(outcome_of(suite, latencies, None), suite, "new", "ref")

    names = ("latency", "P99 latency", "tokens/s", "makespan", "pace")
    assert [f"{name} at 100" for name in names] == [*found]
    assert Ratio(21 / 11, 0.0) == found["makespan at 100"]


def test_a_crowd_with_a_failure_has_no_makespan() -> None:
    """Who failed did not end: such a run would look fast."""
    suite = suite_of(workloads=[{"name": "bfcl", "at_once": [100]}])
    (workload,) = suite.workloads
    job = visits(suite, workload, None)[0].jobs[0]
    whole = run_of(job.load, 10.0)
    broken = msgspec.structs.replace(whole, rows=[msgspec.structs.replace(row, error="lost") for row in whole.rows])

    assert {1: whole.took_s} == makespan({1: summarize(whole), 2: summarize(broken)})


def test_runs_of_other_workloads_are_left_aside() -> None:
    """Each workload is told by its own runs."""
    suite = suite_of(workloads=[{"name": "bfcl", "shares": [1.0]}, {"name": "lats", "shares": [1.0]}])
    bfcl, lats = suite.workloads
    job = visits(suite, lats, 1.0)[0].jobs[0]

    assert {} == outcome(bfcl, {job: run_of(job.load, 1.0)}, 1.0).summaries
