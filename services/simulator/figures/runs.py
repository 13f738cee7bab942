"""Makes the runs that figures are drawn from, on all cores, and keeps them: a scenario is simulated once.

A kept run is found again by its scenario and by all code and data that it came from; whatever of these changes, it is
made anew.
"""

import hashlib
import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import msgspec

from autellix.engine.simulation.calibration import SHIPPED
from autellix.schemas.traces.workloads import TRACES
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario
from autellix.services.simulator.world import simulate

OURS = "autellix."
FIGURES = __name__.rpartition(".")[0]
"""The package whose code no run depends on."""


class Runs:
    """Runs that have been made, in a folder.

    Args:
        folder: Made if it does not exist.
        jobs: Processes at a time.
    """

    def __init__(self, folder: Path, jobs: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._jobs = jobs
        self._origin = _digest_of_origin()

    def missing(self, scenarios: Iterable[Scenario]) -> list[Scenario]:
        """Return those that have not been made, each once."""
        by_file = {self._file(scenario): scenario for scenario in scenarios}
        return [scenario for file, scenario in by_file.items() if not file.exists()]

    def make(self, scenarios: Iterable[Scenario]) -> Iterator[Scenario]:
        """Make runs and yield the scenario of each that is done.

        Raises:
            ValueError: for a scenario that makes no sense.
        """
        with _pool(self._jobs) as pool:
            going = {pool.submit(_simulate, each, self._file(each)): each for each in scenarios}
            for done in as_completed(going):
                done.result()
                yield going[done]

    def result(self, scenario: Scenario) -> Result:
        """Return a run that has been made."""
        return msgspec.msgpack.decode(self._file(scenario).read_bytes(), type=Result)

    def _file(self, scenario: Scenario) -> Path:
        name = hashlib.sha256(self._origin + msgspec.json.encode(scenario)).hexdigest()
        return self._folder / f"{name[:32]}.msgpack"


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Give a pool of fresh processes; what has not begun when the block is left does not begin."""
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _simulate(scenario: Scenario, file: Path) -> None:
    """Make one run; its file appears when it is whole."""
    unfinished = file.with_suffix(".part")
    unfinished.write_bytes(msgspec.msgpack.encode(simulate(scenario)))
    unfinished.replace(file)


def _digest_of_origin() -> bytes:
    """Return what identifies the code that simulates, and the traces and calibrations that come with it."""
    modules = [module for name, module in sys.modules.items() if name.startswith(OURS) and not name.startswith(FIGURES)]
    code = [Path(module.__file__) for module in modules if module.__file__]
    digest = hashlib.sha256()
    for file in sorted({*code, *SHIPPED.glob("*.toml"), *TRACES.glob("*.gz")}):
        digest.update(file.read_bytes())
    return digest.digest()
