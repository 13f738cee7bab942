"""Finished runs on disk: found again, unless they were runs of something else."""

from pathlib import Path

import msgspec
import pytest

from autellix.client.bench.results import ResultError, Results
from autellix.client.bench.schedule import Job, capacity_visit
from autellix.client.bench.systems import Shape, System
from tests.client.bench_compare.conftest import run_of, suite_of

SYSTEMS = {"ref": System(url="http://ref", about="one")}
SHAPE = Shape()


@pytest.fixture
def job() -> Job:
    """Return a run to be made."""
    suite = suite_of()
    return capacity_visit(suite, suite.workloads[0]).jobs[0]


def test_what_is_kept_is_found(tmp_path: Path, job: Job) -> None:
    """A run is found by a later pass, whatever the system is described as for people, and none before it is kept."""
    run = run_of(job.load, 10.0)
    sut = Results(tmp_path / "new", SYSTEMS)
    before = sut.find(job, SHAPE)
    sut.keep(job, SHAPE, run)

    described = {"ref": msgspec.structs.replace(SYSTEMS["ref"], about="another")}
    assert None is before
    assert run == Results(tmp_path / "new", described).find(job, SHAPE)
    assert ["bfcl-capacity-0-ref.json"] == [file.name for file in (tmp_path / "new").iterdir()]


def test_a_run_of_something_else_is_refused(tmp_path: Path, job: Job) -> None:
    """Another load, system or size under the same name is told of, never taken for the run."""
    Results(tmp_path, SYSTEMS).keep(job, SHAPE, run_of(job.load, 10.0))
    other_load = job._replace(load=msgspec.structs.replace(job.load, programs=9))
    other_system = {"ref": System(url="http://other")}

    for systems, asked, shape in (
        (SYSTEMS, other_load, SHAPE),
        (other_system, job, SHAPE),
        (SYSTEMS, job, Shape(slots=9)),
    ):
        with pytest.raises(ResultError, match=r"bfcl-capacity-0-ref\.json is of another load or system"):
            Results(tmp_path, systems).find(asked, shape)


def test_a_broken_file_is_named(tmp_path: Path, job: Job) -> None:
    """What is no run is told of by file."""
    (tmp_path / f"{job.name}.json").write_text("{")

    with pytest.raises(ResultError, match=r"bfcl-capacity-0-ref\.json: "):
        Results(tmp_path, SYSTEMS).find(job, SHAPE)
