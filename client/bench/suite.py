"""A suite: which systems are compared, on which loads, and what must come out of it. A TOML file each.

A load is a share of the capacity of the reference, which is measured first (`shares`, open loop), so many programs at a
time (`live_programs`, closed loop), or so many at once and then no more (`at_once`, offline).
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from autellix.client.bench.load import Count, Load, Scale, programs_of
from autellix.client.bench.settings import Name, SettingsError, converted, read_toml
from autellix.client.bench.systems import Shape, System, read_systems

Factor = Annotated[float, Meta(gt=0)]
Some = Meta(min_length=1)

CAPACITY_SEED = 0
"""Of the programs that the capacity is measured with."""


class SuiteWorkload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workload of a suite, `[[workloads]]`."""

    name: Name
    """In tables and file names; and the workload itself, if not said otherwise."""
    workload: str = ""
    shares: tuple[Factor, ...] = ()
    """Loads: programs a second, over the capacity of the reference."""
    live_programs: tuple[Count, ...] = ()
    """Loads: programs at a time."""
    at_once: tuple[Count, ...] = ()
    """Loads: programs that are all there from the start; `programs` does not count."""
    programs: Count | None = None
    """Of each run; absent: the suite's."""
    capacity_live: Count = 16
    """Programs at a time that the capacity is measured with: more than slots,"""
    capacity_programs: Count = 96
    """and in all: several times that, for the long ones to be among them in their share."""
    half: Literal["first", "second"] | None = None
    max_calls: Count | None = None
    scale: Scale = Scale()
    shape: Shape = Shape()

    def __post_init__(self) -> None:
        """Check what goes together.

        Raises:
            ValueError: naming the keys.
        """
        if sum(map(bool, (self.shares, self.live_programs, self.at_once))) != 1:
            raise ValueError(f"{self.name}: one of shares, live_programs and at_once")

    @property
    def levels(self) -> tuple[float, ...]:
        """Return its loads, the lightest first."""
        return tuple(sorted(self.shares or self.live_programs or self.at_once))

    @property
    def unit(self) -> str:
        """Return what a load is a number of."""
        if self.shares:
            return "load"
        return "programs at a time" if self.live_programs else "programs at once"


class Floor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must come out, `[[floors]]`: a ratio between two systems, see `comparison.ratios`."""

    workload: str
    ratio: str
    system: str
    over: str
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        """Check that there is exactly one limit.

        Raises:
            ValueError: if not.
        """
        if (self.least is None) == (self.most is None):
            raise ValueError("either least or most")


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    systems_file: str = "../systems.toml"
    """Beside this file."""
    results: str = "../results/bench"
    """The folder, beside this file, that has a folder for each suite."""
    systems: Annotated[tuple[str, ...], Some]
    reference: str = "vllm-opt"
    """The system whose capacity counts, and over which ratios are."""
    workloads: Annotated[tuple[SuiteWorkload, ...], Some]
    seeds: Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Some] = (1,)
    """A run each: other programs, at other times."""
    programs: Count = 200
    """Of each run."""
    restart: bool = True
    """Whether a system is started anew for each of its runs. Else all are started for a workload, as far as runs are
    missing, and take turns; what a system has learnt it keeps as long, and no text comes twice."""
    engine_core: bool = False
    """Whether the engine has a core for itself; see `machine.divide`."""
    warm_up: Annotated[int, Meta(ge=0)] = 4
    """Programs before each run that do not count."""
    factors: tuple[Annotated[float, Meta(gt=1)], ...] = (1.5, 5.0)
    """Latencies at which rates are compared, over the reference's latency at its lightest load."""
    floors: tuple[Floor, ...] = ()

    def load(self, workload: SuiteWorkload, level: float, seed: int, capacity_per_s: float | None) -> Load:
        """Return the load of a run.

        Args:
            workload: Of this suite.
            level: One of its `levels`.
            seed: Which programs, and when.
            capacity_per_s: Programs a second, for a workload with shares.

        Raises:
            ValueError: when it has shares and the capacity is None.
        """
        edition = workload.levels.index(level) + 1
        base = msgspec.structs.replace(self._base(workload), seed=seed, edition=edition)
        if workload.shares:
            if capacity_per_s is None:
                raise ValueError(f"{workload.name}: a share of an unknown capacity")
            return msgspec.structs.replace(base, rate_per_s=level * capacity_per_s)
        if workload.live_programs:
            return msgspec.structs.replace(base, live_programs=int(level))
        return msgspec.structs.replace(base, programs=int(level))

    def capacity_load(self, workload: SuiteWorkload) -> Load:
        """Return the load that the capacity is measured with."""
        count, live = workload.capacity_programs, workload.capacity_live
        return msgspec.structs.replace(self._base(workload), seed=CAPACITY_SEED, programs=count, live_programs=live)

    def tokens_per_program(self, workload: SuiteWorkload) -> float:
        """Return how many output tokens a program has, on average over the seeds.

        Raises:
            LoadError: for a workload that makes no sense.
        """
        programs = [
            arrival.program
            for seed in self.seeds
            for arrival in programs_of(msgspec.structs.replace(self._base(workload), seed=seed))
        ]
        return sum(call.output_tokens for program in programs for call in program.calls) / len(programs)

    def _base(self, workload: SuiteWorkload) -> Load:
        return Load(
            workload=workload.workload or workload.name,
            programs=workload.programs or self.programs,
            rate_per_s=None,
            half=workload.half,
            max_calls=workload.max_calls,
            max_context_tokens=workload.shape.max_model_len,
            scale=workload.scale,
        )


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A suite that was read from a file, with what it names."""

    suite: Suite
    systems: dict[str, System]
    """Those of the suite, in its order."""
    here: Path
    """The folder that the systems' commands may name."""
    results: Path
    """Where its results are kept."""


def read_suite(path: Path) -> Opened:
    """Return the suite in a file.

    Raises:
        SettingsError: naming file and key, when it, or the file of its systems, cannot be used.
    """
    suite = converted(read_toml(path), Suite, str(path))
    systems_file = path.parent / suite.systems_file
    known = read_systems(systems_file)
    unknown = [name for name in suite.systems if name not in known]
    if unknown:
        raise SettingsError(f"{path}: systems: {unknown[0]!r} is none of {', '.join(known)}, which {systems_file} has")
    if suite.reference not in suite.systems:
        raise SettingsError(f"{path}: reference: {suite.reference!r} is none of systems")
    names = [workload.name for workload in suite.workloads]
    if len(set(names)) < len(names):
        raise SettingsError(f"{path}: workloads: two of one name")
    return Opened(
        suite=suite,
        systems={name: known[name] for name in suite.systems},
        here=systems_file.parent.resolve(),
        results=path.parent / suite.results / path.stem,
    )


def narrowed(opened: Opened, systems: tuple[str, ...], workloads: tuple[str, ...]) -> Opened:
    """Return a suite with some of its systems, and always its reference, and some of its workloads; none named: all.

    Raises:
        SettingsError: for a name that it does not have.
    """
    suite = opened.suite
    _check("systems", systems, suite.systems)
    _check("workloads", workloads, [workload.name for workload in suite.workloads])
    kept = tuple(name for name in suite.systems if name in (*systems, suite.reference) or not systems)
    chosen = tuple(each for each in suite.workloads if each.name in workloads or not workloads)
    names = {each.name for each in chosen}
    floors = tuple(each for each in suite.floors if each.workload in names and {each.system, each.over} <= set(kept))
    smaller = msgspec.structs.replace(suite, systems=kept, workloads=chosen, floors=floors)
    return msgspec.structs.replace(opened, suite=smaller, systems={name: opened.systems[name] for name in kept})


def _check(what: str, asked: tuple[str, ...], known: "tuple[str, ...] | list[str]") -> None:
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise SettingsError(f"--{what}: {unknown[0]!r} is none of {', '.join(known)}")
