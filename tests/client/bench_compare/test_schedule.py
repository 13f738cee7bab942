"""The order of a suite's runs: each is there once, systems take turns, and all get the same loads."""

from collections import Counter, defaultdict

import pytest

from autellix.client.bench.load import Load
from autellix.client.bench.schedule import Visit, capacity_visit, visits
from tests.client.bench_compare.conftest import suite_of

SEEDS = [1, 2, 3, 4]


RESTARTS = pytest.mark.parametrize("restart", [True, False])


def planned(*, restart: bool, seeds: list[int] | None = None) -> list[Visit]:
    """Return the starts of a suite's only workload."""
    suite = suite_of(restart=restart, seeds=seeds or SEEDS)
    return visits(suite, suite.workloads[0], 4.0)


@RESTARTS
def test_each_run_is_there_once(*, restart: bool) -> None:
    """Every system gets every load of every seed, once."""
    jobs = Counter((job.level, job.seed, job.system) for visit in planned(restart=restart) for job in visit.jobs)

    expected = {(level, seed, system) for level in ("0.5", "1") for seed in SEEDS for system in ("ref", "new")}
    assert dict.fromkeys(expected, 1) == jobs


@RESTARTS
def test_systems_are_asked_the_same(*, restart: bool) -> None:
    """The load of a run does not depend on the system, and is another one for each share and seed."""
    loads: dict[tuple[str, int], set[Load]] = defaultdict(set)
    for visit in planned(restart=restart):
        for job in visit.jobs:
            loads[job.level, job.seed].add(job.load)

    assert {1} == {len(each) for each in loads.values()}
    assert len(loads) == len(set.union(*loads.values()))


@RESTARTS
def test_systems_take_turns_at_each_load(*, restart: bool) -> None:
    """Both systems serve one load before the next, from the lightest on, and neither is always first."""
    jobs = [job for visit in planned(restart=restart) for job in visit.jobs]
    pairs = [jobs[number : number + 2] for number in range(0, len(jobs), 2)]

    assert all({"ref", "new"} == {job.system for job in pair} for pair in pairs)
    assert all(1 == len({job.load for job in pair}) for pair in pairs)
    assert {"ref", "new"} == {pair[0].system for pair in pairs}
    assert ["0.5", "1"] * len(SEEDS) == [pair[0].level for pair in pairs]
    assert [1, 2] * len(SEEDS) == [pair[0].load.edition for pair in pairs]


def test_systems_are_started_once_or_for_each_run() -> None:
    """Between two starts there is one run, or there are all runs of the workload."""
    assert {1} == {len(visit.jobs) for visit in planned(restart=True)}
    assert [2 * 2 * len(SEEDS)] == [len(visit.jobs) for visit in planned(restart=False)]


def test_order_is_the_same_each_time() -> None:
    """A suite that goes on where it stopped goes on in the same order."""
    assert planned(restart=False) == planned(restart=False)


def test_capacity_is_measured_on_the_reference_without_a_rate() -> None:
    """Many programs at a time on the reference, of a seed of their own."""
    suite = suite_of()
    (job,) = capacity_visit(suite, suite.workloads[0]).jobs

    assert ("ref", None, 0) == (job.system, job.load.rate_per_s, job.load.seed)
    assert (96, 16) == (job.load.programs, job.load.live_programs)
