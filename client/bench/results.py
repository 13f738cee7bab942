"""The runs of a suite on disk, a JSON file each: what was finished is not run again, unless it was something else."""

from pathlib import Path

import msgspec

from autellix.client.bench import machine
from autellix.client.bench.measures import Run
from autellix.client.bench.schedule import Job
from autellix.client.bench.systems import Shape, System
from autellix.client.errors import AutellixError


class ResultError(AutellixError):
    """A file of results that cannot be used; the text names it."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run, and what it was a run of."""

    system: System
    shape: Shape
    run: Run


class Results:
    """The files of one suite.

    Args:
        folder: Where they are; made when the first is written.
        systems: What the suite's systems are now.
    """

    def __init__(self, folder: Path, systems: dict[str, System]) -> None:
        self.folder = folder
        self._systems = systems
        self._machine = machine.described()

    def forget(self) -> None:
        """Remove all runs, so that they are made anew."""
        for file in self.folder.glob("*.json"):
            file.unlink()

    def find(self, job: Job, shape: Shape) -> Run | None:
        """Return a run if it was finished before.

        Raises:
            ResultError: when the file holds no run, or that of another load, system, size or machine.
        """
        file = self._file(job)
        if not file.exists():
            return None
        try:
            result = msgspec.json.decode(file.read_bytes(), type=Result)
        except msgspec.MsgspecError as error:
            raise ResultError(f"{file}: {error}") from error
        if (result.system, result.shape, result.run.load) != (self._described(job), shape, job.load):
            raise ResultError(f"{file} is of another load or system than the suite asks for now; move it away")
        if result.run.machine != self._machine:
            raise ResultError(f"{file} was made on {result.run.machine or 'an unknown machine'}; move it away")
        return result.run

    def keep(self, job: Job, shape: Shape, run: Run) -> None:
        """Write a finished run: wholly, or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        result = Result(system=self._described(job), shape=shape, run=run)
        file = self._file(job)
        partial = file.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(result) + b"\n")
        partial.rename(file)

    def log(self, system: str) -> Path:
        """Return where a system's output goes."""
        return self.folder / "logs" / f"{system}.log"

    def _file(self, job: Job) -> Path:
        return self.folder / f"{job.name}.json"

    def _described(self, job: Job) -> System:
        """Return what decides how a system fares: all but its description for people."""
        return msgspec.structs.replace(self._systems[job.system], about="")
