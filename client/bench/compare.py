"""Runs a suite: every system on every load. Each finished run is kept at once, and a second pass makes the others."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from typing import NamedTuple

import msgspec

from autellix.client.bench.load import Load
from autellix.client.bench.measures import Run, sustained_tokens_per_s
from autellix.client.bench.replay import replay
from autellix.client.bench.results import Results
from autellix.client.bench.schedule import Job, Visit, capacity_visit, visits
from autellix.client.bench.servers import running
from autellix.client.bench.suite import Opened, SuiteWorkload
from autellix.client.bench.systems import System
from autellix.client.bench.targets import GatewayTarget, NatsTarget, OpenAITarget, Target
from autellix.client.errors import AutellixError

Progress = Callable[[Load], AbstractContextManager[Callable[[], None]]]
"""Shows how far a run is: entered with its load, it yields what to call for each program that is over."""


class Finished(NamedTuple):
    """A suite, as far as it could be run."""

    runs: Mapping[Job, Run]
    capacities: Mapping[str, float]
    """Programs a second of the reference, by workload."""
    failures: Sequence[str]
    """Why runs are missing."""


class Comparison:
    """One pass through a suite.

    Args:
        opened: The suite.
        say: Is told, in a line, what begins and what failed.
        progress: Shows how far a run is.
    """

    def __init__(self, opened: Opened, say: Callable[[str], None], progress: Progress) -> None:
        self._opened = opened
        self._say = say
        self._progress = progress
        self._results = Results(opened.results, opened.systems)
        self._failures: list[str] = []

    async def run(self) -> Finished:
        """Make every run that is not there yet; one that fails is told of and left out.

        Raises:
            ResultError: when a run is there that the suite no longer asks for.
        """
        runs: dict[Job, Run] = {}
        capacities: dict[str, float] = {}
        for workload in self._opened.suite.workloads:
            capacity_per_s = None
            if workload.shares:
                capacity_per_s = await self._capacity(workload)
                if capacity_per_s is None:
                    continue
                capacities[workload.name] = capacity_per_s
            for visit in visits(self._opened.suite, workload, capacity_per_s):
                runs |= await self._visit(visit)
        return Finished(runs, capacities, self._failures)

    async def _capacity(self, workload: SuiteWorkload) -> float | None:
        """Return how many programs a second the reference can serve.

        Not how many of those that it measures by end: the short end first. It is the tokens a second that it makes when
        there are always enough programs, over the tokens of a program of the suite.
        """
        runs = await self._visit(capacity_visit(self._opened.suite, workload))
        tokens_per_s = [sustained_tokens_per_s(run) for run in runs.values()]
        if not runs:
            return None
        if not tokens_per_s[0]:
            self._fail(f"{workload.name}: no capacity, since too few programs ended")
            return None
        return tokens_per_s[0] / self._opened.suite.tokens_per_program(workload)

    async def _visit(self, visit: Visit) -> dict[Job, Run]:
        """Return the runs of a start, those that were made before and those that can be made now."""
        found = {job: self._results.find(job, visit.shape) for job in visit.jobs}
        runs = {job: run for job, run in found.items() if run}
        missing = [job for job in visit.jobs if job not in runs]
        async with AsyncExitStack() as up:
            urls = await self._start(visit, missing, up)
            for job in missing:
                try:
                    if job.system in urls:
                        runs[job] = await self._replayed(job, urls[job.system])
                        self._results.keep(job, visit.shape, runs[job])
                except AutellixError as error:  # the system may be dead: it is asked no more
                    del urls[job.system]
                    self._fail(f"{_names(job.system, missing, runs)}: {error}")
        return runs

    async def _start(self, visit: Visit, jobs: Sequence[Job], up: AsyncExitStack) -> dict[str, str]:
        """Start the systems of runs, to be stopped with `up`, and return the URL of each that is ready."""
        urls: dict[str, str] = {}
        for name in dict.fromkeys(job.system for job in jobs):
            self._say(f"starting {name}")
            system, log = self._opened.systems[name], self._results.log(name)
            try:
                started = running(name, system, visit.shape, here=self._opened.here, log=log)
                urls[name] = await up.enter_async_context(started)
            except AutellixError as error:
                self._fail(f"{_names(name, jobs, {})}: {error}")
        return urls

    async def _replayed(self, job: Job, url: str) -> Run:
        self._say(f"{job.name}: {job.load.title}")
        async with target_of(self._opened.systems[job.system], url) as target:
            with self._progress(job.load) as program_over:
                warm_up = self._opened.suite.warm_up
                run = await replay(job.load, target, on_program_over=program_over, warm_up=warm_up)
        return msgspec.structs.replace(run, system=job.system)

    def _fail(self, why: str) -> None:
        self._failures.append(why)
        self._say(f"failed: {why}")


def _names(system: str, jobs: Sequence[Job], runs: Mapping[Job, Run]) -> str:
    """Return the jobs of a system of which there is no run."""
    return ", ".join(job.name for job in jobs if job.system == system and job not in runs)


def target_of(system: System, url: str) -> Target:
    """Return how a system is reached at its URL."""
    match system.kind:
        case "openai":
            return OpenAITarget(url, priority=system.priority)
        case "gateway":
            return GatewayTarget(url)
        case "nats":
            return NatsTarget(url)
