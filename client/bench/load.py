"""What a run replays: which programs, how much smaller, and when each arrives."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from autellix.client.errors import AutellixError
from autellix.schemas.traces import scale
from autellix.schemas.traces.records import TraceError
from autellix.schemas.traces.workloads import Arrival, WorkloadError, arrivals

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]

WARM_UP_SEEDS = 1_000_003
"""Added to the seed of a load, so that other programs warm up than those that are measured."""


class LoadError(AutellixError):
    """A load that cannot be replayed; the text says why."""


class Scale(scale.Scale, frozen=True, kw_only=True):
    """How much smaller than recorded the programs are."""

    interrupt_cap_s: Seconds = 30.0
    """The longest that an interrupt is, as replayed."""


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The load of one run: a `workloads.Choice`. Equal loads are equal programs with equal texts."""

    workload: str
    """A name in `workloads.WORKLOADS`, or the path of a trace."""
    programs: Count
    seed: Annotated[int, Meta(ge=0)] = 1
    """Decides which programs, when they arrive, and their texts."""
    edition: Annotated[int, Meta(ge=0)] = 0
    """Another number gives the same programs other texts, so that no cache knows them from an earlier run."""
    rate_per_s: Annotated[float, Meta(gt=0)] | None = 1.0
    """Programs that arrive a second, as a Poisson process; None: all at once, at the start."""
    live_programs: Count | None = None
    """So many are there at any time, whatever the rate: when one is over the next arrives."""
    half: Literal["first", "second"] | None = None
    """Take only one half of each trace: what is tuned on the one is judged on the other."""
    max_calls: Count | None = None
    """Leave out programs of more calls; None: the workload's own bound."""
    max_context_tokens: Count | None = None
    """Leave out programs that grow longer, as they are replayed."""
    scale: Scale = Scale()

    @property
    def title(self) -> str:
        """Return the load in a few words."""
        arriving = "all at once" if self.rate_per_s is None else f"{self.rate_per_s:g}/s"
        arriving = f"{self.live_programs} at a time" if self.live_programs else arriving
        return f"{self.programs} programs of {self.workload}, {arriving}, seed {self.seed}"


def programs_of(load: Load) -> list[Arrival]:
    """Return the programs of a load, made smaller, in order of arrival.

    Raises:
        LoadError: for an unknown workload, one without a program that may be taken, or a trace that makes no sense.
    """
    try:
        return arrivals(load)
    except (WorkloadError, TraceError) as error:
        raise LoadError(str(error)) from error


def warm_up_of(load: Load, programs: int) -> list[Arrival]:
    """Return so many programs like those of a load, none of which it measures.

    Raises:
        LoadError: as `programs_of`.
    """
    if not programs:
        return []
    seed = load.seed + WARM_UP_SEEDS
    return programs_of(msgspec.structs.replace(load, programs=programs, seed=seed, rate_per_s=None, live_programs=None))
