"""The order of a suite's runs: systems take turns, shuffled anew each time, so that a slow hour hits all of them."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from autellix.client.bench.load import Load
from autellix.client.bench.suite import Suite, SuiteWorkload
from autellix.client.bench.systems import Shape


class Job(NamedTuple):
    """One run."""

    workload: str
    """Its name in the suite."""
    level: str
    """The load: a share of the capacity, or so many programs at a time."""
    seed: int
    system: str
    load: Load

    @property
    def name(self) -> str:
        """Return what tells it apart from all runs of the suite."""
        return f"{self.workload}-{self.level}-{self.seed}-{self.system}"


class Visit(NamedTuple):
    """The runs of one start of a system, in order."""

    system: str
    shape: Shape
    jobs: tuple[Job, ...]


def capacity_visit(suite: Suite, workload: SuiteWorkload) -> Visit:
    """Return the run that the capacity is taken from."""
    system = suite.reference
    job = Job(workload.name, "capacity", 0, system, suite.capacity_load(workload))
    return Visit(system, workload.shape, (job,))


def visits(suite: Suite, workload: SuiteWorkload, capacity_per_s: float | None) -> Iterator[Visit]:
    """Yield all runs of a workload.

    Args:
        suite: What decides the order.
        workload: One of it.
        capacity_per_s: Programs a second; None for a workload without shares.
    """
    together = [workload.levels] if suite.interleave == "seeds" else [(level,) for level in workload.levels]
    for seed in suite.seeds:
        for levels in together:
            systems = list(suite.systems)
            random.Random(f"{workload.name} {levels} {seed}").shuffle(systems)  # noqa: S311 - who goes first
            for system in systems:
                loads = {level_name(level): suite.load(workload, level, seed, capacity_per_s) for level in levels}
                jobs = tuple(Job(workload.name, name, seed, system, load) for name, load in loads.items())
                yield Visit(system, workload.shape, jobs)


def level_name(level: float) -> str:
    """Return a load as tables and file names have it."""
    return f"{level:g}"
