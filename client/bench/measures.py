"""How the programs of a run fared. Pure: from the rows of a run to its numbers.

Measured are the programs between two shares of the arrivals (by default the middle eight tenths), so that neither the
empty system of the beginning nor the draining one of the end counts. What a server does not tell is None, never zero.
"""

from collections.abc import Sequence

import msgspec

from autellix.client.bench.idle import Idle
from autellix.client.bench.load import Load
from autellix.schemas.spread import Spread, spread


class ProgramRow(msgspec.Struct, frozen=True, kw_only=True):
    """One program; seconds and tokens.

    Its path is the chain of calls that determined its end: back from the call that ended last, each time to the parent
    that ended last.
    """

    name: str
    """In the trace."""
    trace: str
    calls: int
    """That were answered."""
    arrived_s: float
    """After the start of the run: when it was due, were the client late."""
    makespan_s: float
    """From arrival to end, interrupts included: the job completion time."""
    response_s: float
    """The same without the interrupts on its path."""
    waited_s: float
    """For the first tokens of all its calls, those of parallel ones added."""
    queued_s: float | None = None
    """For first tokens on its path, beyond what the idle system needs for them; None: that is not known."""
    idle_s: float | None = None
    """Its makespan on the idle system, as estimated; see `idle`."""
    prompt_tokens: int
    cached_tokens: int | None
    """Found in the prefix cache; None: the server does not tell."""
    output_tokens: int
    short_answers: int = 0
    """Answers of fewer tokens than recorded: the server does not let itself be told when to stop."""
    error: str = ""
    """Of the call that failed; the program ended with it."""

    @property
    def ended_s(self) -> float:
        """Return the time of its end after the start of the run."""
        return self.arrived_s + self.makespan_s

    @property
    def ms_per_token(self) -> float:
        """Return the paper's program-level token latency (section 6.1): response over the tokens of all threads."""
        return self.response_s * 1000 / self.output_tokens


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One load on one system."""

    load: Load
    system: str
    """What was measured, in a word."""
    started_at: str
    """ISO 8601, UTC."""
    machine: str = ""
    """Where the client ran, see `machine`; empty: nobody noted it."""
    pace_ms: float | None = None
    """How fast that was meanwhile, see `pace`: the less the faster; None: nobody noted it."""
    took_s: float
    """From the start to the end of the last program; the warm-up is not in it."""
    idle: Idle | None
    """None: there was no warm-up."""
    rows: list[ProgramRow]
    """In order of arrival."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a run: of the measured programs that finished, if not said otherwise."""

    measured: int
    finished: int
    """Of those measured."""
    errors: int
    """Programs of the whole run that failed."""
    short_answers: int
    """In the whole run."""
    took_s: float
    """The whole run, from its start to the end of its last program."""
    pace_ms: float | None
    """How fast the machine was, see `pace`: only runs of a like pace are alike."""
    token_latency_ms: Spread | None
    """None, as the other spreads: no measured program finished, or it is not known."""
    completion_s: Spread | None
    """Interrupts included."""
    slowdown: Spread | None
    """Completion over what it would be on the idle system, as estimated (see `idle`)."""
    waiting_share: Spread | None
    """Time to first tokens beyond what the idle system needs, on the program's path, over its response."""
    output_tokens_per_s: float | None
    """Of programs that finished, between the ends of the first and the last tenth (as the programs are measured)."""
    programs_per_s: float | None
    """In the same time."""
    hit_rate: float | None
    """Cached over all prompt tokens; None: the server does not tell."""


def summarize(run: Run, *, measure_from: float = 0.1, measure_to: float = 0.9) -> Summary:
    """Return the numbers of a run.

    Args:
        run: What happened.
        measure_from: The share of the programs that come before those that are measured.
        measure_to: The share that has come when measuring ends.
    """
    middle = _middle(len(run.rows), measure_from, measure_to)
    measured = run.rows[middle]
    finished = [row for row in measured if not row.error]
    by_end = sorted((row for row in run.rows if not row.error), key=lambda row: row.ended_s)
    tokens_per_s, programs_per_s = _rates(by_end[_middle(len(by_end), measure_from, measure_to)])
    return Summary(
        measured=len(measured),
        finished=len(finished),
        errors=sum(bool(row.error) for row in run.rows),
        short_answers=sum(row.short_answers for row in run.rows),
        took_s=run.took_s,
        pace_ms=run.pace_ms,
        token_latency_ms=spread(row.ms_per_token for row in finished),
        completion_s=spread(row.makespan_s for row in finished),
        slowdown=spread(row.makespan_s / row.idle_s for row in finished if row.idle_s),
        waiting_share=spread(row.queued_s / row.response_s for row in finished if row.queued_s is not None),
        output_tokens_per_s=tokens_per_s,
        programs_per_s=programs_per_s,
        hit_rate=_hit_rate(finished),
    )


def sustained_tokens_per_s(run: Run) -> float | None:
    """Return how many output tokens a second a closed loop made while it was full; None: too few programs ended.

    Those of programs that ended in that time. It is full until the last program arrives; after that it drains, and
    slows down. The first ones, as many as there are at a time, began together on an empty system; so their ends, or a
    third of all ends if that is less, are left out.
    """
    full_until_s = max((row.arrived_s for row in run.rows), default=0.0)
    by_end = sorted((row for row in run.rows if not row.error), key=lambda row: row.ended_s)
    while_full = [row for row in by_end if row.ended_s <= full_until_s]
    tokens_per_s, _ = _rates(while_full[min(run.load.live_programs or 0, len(while_full) // 3) :])
    return tokens_per_s


def _middle(count: int, measure_from: float, measure_to: float) -> slice:
    """Return which of so many are measured: one at least, if there is one."""
    first = max(0, min(round(measure_from * count), count - 1))
    return slice(first, max(round(measure_to * count), first + 1))


def _rates(by_end: Sequence[ProgramRow]) -> tuple[float | None, float | None]:
    """Return tokens and programs a second between the first end and the last; what ended first is not in that time."""
    took_s = by_end[-1].ended_s - by_end[0].ended_s if by_end else 0.0
    if not took_s:
        return None, None
    return sum(row.output_tokens for row in by_end[1:]) / took_s, (len(by_end) - 1) / took_s


def _hit_rate(rows: Sequence[ProgramRow]) -> float | None:
    told = [row.cached_tokens for row in rows if row.cached_tokens is not None]
    if not told or len(told) < len(rows):
        return None
    return sum(told) / sum(row.prompt_tokens for row in rows)
