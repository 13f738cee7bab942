"""The order of a suite's runs: systems take turns, shuffled anew each time, so that a slow hour hits all of them."""

import random
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from autellix.client.bench.load import Load
from autellix.client.bench.suite import Suite, SuiteWorkload
from autellix.client.bench.systems import Shape


class Job(NamedTuple):
    """One run."""

    workload: str
    """Its name in the suite."""
    level: str
    """The load: a share of the capacity, or so many programs at a time, or at once."""
    seed: int
    system: str
    load: Load

    @property
    def name(self) -> str:
        """Return what tells it apart from all runs of the suite."""
        return f"{self.workload}-{self.level}-{self.seed}-{self.system}"


class Visit(NamedTuple):
    """Runs, in order, between one start of their systems and its end."""

    shape: Shape
    jobs: tuple[Job, ...]


def capacity_visit(suite: Suite, workload: SuiteWorkload) -> Visit:
    """Return the run that the capacity is taken from."""
    job = Job(workload.name, "capacity", 0, suite.reference, suite.capacity_load(workload))
    return Visit(workload.shape, (job,))


def visits(suite: Suite, workload: SuiteWorkload, capacity_per_s: float | None) -> list[Visit]:
    """Return all runs of a workload.

    Args:
        suite: What decides the order.
        workload: One of it.
        capacity_per_s: Programs a second; None for a workload without shares.
    """
    jobs = tuple(_jobs(suite, workload, capacity_per_s))
    parts = [(job,) for job in jobs] if suite.restart else [jobs]
    return [Visit(workload.shape, part) for part in parts]


def _jobs(suite: Suite, workload: SuiteWorkload, capacity_per_s: float | None) -> Iterator[Job]:
    for seed, level in product(suite.seeds, workload.levels):
        load = suite.load(workload, level, seed, capacity_per_s)
        systems = list(suite.systems)
        random.Random(f"{workload.name} {level:g} {seed}").shuffle(systems)  # noqa: S311 - who goes first
        for system in systems:
            yield Job(workload.name, level_name(level), seed, system, load)


def level_name(level: float) -> str:
    """Return a load as tables and file names have it."""
    return f"{level:g}"
