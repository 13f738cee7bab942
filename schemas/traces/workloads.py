"""Which programs arrive, and when."""

import hashlib
import random
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple, Protocol

from autellix.schemas.traces.records import TraceProgram, read_trace
from autellix.schemas.traces.scale import Scale, scaled

TRACES = Path(__file__).resolve().parents[2] / "ops/bench/traces"
"""In the repository; they are no part of an installed package."""


class WorkloadError(ValueError):
    """A workload that cannot be run; the text says why."""


class Part(NamedTuple):
    """One trace of a workload."""

    trace: str
    max_calls: int | None = None


SHAREGPT = Part("sharegpt", max_calls=80)
BFCL = Part("bfcl")
LATS = Part("lats_synthetic_fewshot")

WORKLOADS = {
    "sharegpt": (SHAREGPT,),
    "bfcl": (BFCL,),
    "lats": (LATS,),
    "mixed": (SHAREGPT, BFCL, LATS),
    "claude_code": (Part("claude_code"),),
}
"""The workloads of the paper (section 6.1; `mixed` has equal shares of its parts), and one more."""


class Choice(Protocol):
    """What decides which programs arrive, and when."""

    @property
    def workload(self) -> str:
        """A name in `WORKLOADS`, or the path of a trace."""
        ...

    @property
    def programs(self) -> int:
        """How many."""
        ...

    @property
    def seed(self) -> int:
        """Decides which, and when."""
        ...

    @property
    def rate_per_s(self) -> float | None:
        """Programs that arrive a second, as a Poisson process; None: all at once, at the start."""
        ...

    @property
    def live_programs(self) -> int | None:
        """So many are there at any time, whatever the rate."""
        ...

    @property
    def half(self) -> str | None:
        """Take only one half of each trace, `first` or `second`."""
        ...

    @property
    def max_calls(self) -> int | None:
        """Leave out programs of more calls; None: the workload's own bound."""
        ...

    @property
    def max_context_tokens(self) -> int | None:
        """Leave out programs that grow longer, as they are replayed."""
        ...

    @property
    def scale(self) -> Scale:
        """How much smaller the programs are than recorded."""
        ...


class Arrival(NamedTuple):
    """A program that arrives."""

    at_ms: float
    """Infinite: when another is over."""
    trace: str
    program: TraceProgram


def arrivals(choice: Choice) -> list[Arrival]:
    """Return the programs of a choice in order of arrival.

    The seed decides which; a different rate, engine or policy gets the same programs in the same order.

    Raises:
        WorkloadError: for an unknown workload, or one without a program that may be taken.
        TraceError: for a trace that makes no sense.
    """
    parts = WORKLOADS.get(choice.workload) or (_part_of_path(choice.workload),)
    chance = random.Random(f"programs {choice.seed}")  # noqa: S311 - a simulation is repeatable
    chosen: list[tuple[str, TraceProgram]] = []
    for number, part in enumerate(parts):
        count = len(range(number, choice.programs, len(parts)))
        chosen += [(part.trace, program) for program in _sample(_programs(part, choice), count, chance)]
    chance.shuffle(chosen)
    times = _times_ms(choice)
    return [Arrival(at_ms, trace, program) for at_ms, (trace, program) in zip(times, chosen, strict=True)]


def check_fit(arriving: Sequence[Arrival], tokens: int) -> None:
    """Refuse programs that grow longer than an engine can hold.

    Raises:
        WorkloadError: naming the first of them.
    """
    too_long = [program for _, _, program in arriving if program.context_tokens > tokens]
    if too_long:
        first = too_long[0]
        raise WorkloadError(
            f"{len(too_long)} of {len(arriving)} programs do not fit an engine that holds {tokens} tokens: "
            f"{first.program_id} grows to {first.context_tokens}. Leave them out with max_context_tokens."
        )


def _part_of_path(workload: str) -> Part:
    if not workload.endswith(".jsonl.gz"):
        known = ", ".join(WORKLOADS)
        raise WorkloadError(f"workload: {workload!r} is neither one of {known} nor the path of a .jsonl.gz file")
    return Part(workload)


def _programs(part: Part, choice: Choice) -> list[TraceProgram]:
    """Return the programs of a trace that a choice takes."""
    path = Path(part.trace) if part.trace.endswith(".jsonl.gz") else TRACES / f"{part.trace}.jsonl.gz"
    calls = choice.max_calls or part.max_calls or inf
    tokens = choice.max_context_tokens or inf
    found = [scaled(each, choice.scale) for each in read_trace(path) if len(each.calls) <= calls]
    found = [each for each in found if each.context_tokens <= tokens]
    found = [each for each in found if choice.half in (None, half_of(each.program_id))]
    if not found:
        raise WorkloadError(f"{path}: every program is above max_calls or max_context_tokens")
    return found


def half_of(name: str) -> str:
    """Return which half of its trace a program is in; its name alone decides."""
    return "second" if hashlib.blake2b(name.encode(), digest_size=1).digest()[0] % 2 else "first"


def _sample(programs: list[TraceProgram], count: int, chance: random.Random) -> list[TraceProgram]:
    """Return different programs, as long as there are enough."""
    return chance.sample(programs, count) if count <= len(programs) else chance.choices(programs, k=count)


def _times_ms(choice: Choice) -> list[float]:
    """Return ascending times; with another rate the same pattern, stretched."""
    if live := choice.live_programs:
        return [0.0 if number < live else inf for number in range(choice.programs)]
    if choice.rate_per_s is None:
        return [0.0] * choice.programs
    chance = random.Random(f"arrivals {choice.seed}")  # noqa: S311 - a simulation is repeatable
    at_ms, times = 0.0, []
    for _ in range(choice.programs):
        at_ms += chance.expovariate(1.0) * 1000 / choice.rate_per_s
        times.append(at_ms)
    return times
