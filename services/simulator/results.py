"""What a run brings: a row for each measured program, and the numbers of the whole run. Milliseconds, if not said."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from autellix.engine.simulation.calls import Counters
from autellix.schemas.messages import EngineLoad
from autellix.schemas.spread import Spread, spread
from autellix.services.simulator.scenario import Scenario

Outcome = Literal["finished", "failed", "unfinished"]


class ProgramRow(msgspec.Struct, frozen=True, kw_only=True):
    """One program.

    Its path is the chain of calls that determined its end: back from the call that ended last, each time to the parent
    that ended last.
    """

    number: int
    """In order of arrival."""
    trace: str
    program: str
    """Its name in the trace."""
    outcome: Outcome
    arrived_at_ms: float
    ended_at_ms: float
    """Of an unfinished program: when the run ended."""
    interrupts_ms: float
    """Interrupts on its path."""
    response_ms: float
    """From arrival to end, without these."""
    path_wait_ms: float
    """Time that calls on its path waited in the engine."""
    path_service_ms: float
    """Service of these calls. What is left of the response they spent in the batch, but not in its steps: those that
    only prefill, where prefills are not chunked."""
    wait_ms: float
    """Time that all its calls waited."""
    service_ms: float
    """Sum over all its calls."""
    calls: int
    retries: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int

    @property
    def jct_ms(self) -> float:
        """Return the job completion time: from arrival to end, interrupts included."""
        return self.ended_at_ms - self.arrived_at_ms

    @property
    def ms_per_token(self) -> float:
        """Return the paper's program-level token latency (section 6.1): response over the tokens of all threads."""
        return self.response_ms / self.output_tokens

    @property
    def wait_share(self) -> float:
        """Return the share of the response that the program's path waited for."""
        return self.path_wait_ms / self.response_ms


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a measured program."""

    program: int
    """The number of its program."""
    call: int
    """Its id in the trace."""
    engine: str
    submitted_at_ms: float
    ended_at_ms: float
    wait_ms: float
    service_ms: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int
    queues: tuple[int, ...]


class EngineRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine did from start to end."""

    engine: str
    calls: int
    """That ended."""
    counters: Counters


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a program was resident on an engine, or held at its gate; to the second."""

    program: int
    """Its number."""
    engine: str
    kind: Literal["resident", "held"]
    since_ms: float
    until_ms: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a run: spreads over the measured programs that finished, the rest over everything."""

    measured: int
    finished: int
    """Of those measured."""
    failed: int
    unfinished: int
    limit_hit: bool
    """The run ended at its limit of virtual time: the unfinished programs are the slow ones, and are left out."""
    virtual_ms: float
    ms_per_token: Spread | None
    """None, as the other spreads: no measured program finished."""
    response_ms: Spread | None
    jct_ms: Spread | None
    wait_ms: Spread | None
    wait_share: Spread | None
    service_ms: Spread | None
    programs_per_s: float
    """Programs that finished, measured or not, over the time of the run."""
    output_tokens_per_s: float
    prefix_hit_rate: float
    """Cached over all prompt tokens of the calls that began."""
    working_set: float
    """The contexts of all live programs, common ones once, over the engines' KV cache: the mean of the run's middle."""
    preemptions: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    scenario: Scenario
    summary: Summary
    engines: list[EngineRow]
    programs: list[ProgramRow]
    """The measured ones, in order of arrival."""
    calls: list[CallRow]
    """If the scenario keeps them: those of the measured programs, in order of their end."""
    loads: list[EngineLoad]
    """If the scenario keeps them: the engines' heartbeats."""
    stays: list[Stay]
    """If the scenario keeps them: of all programs, in order of their ends."""

    @property
    def title(self) -> str:
        """Return what was run, in a line."""
        scenario = self.scenario
        arriving = "all at once" if scenario.rate_per_s is None else f"{scenario.rate_per_s:g}/s"
        arriving = f"{scenario.live_programs} at a time" if scenario.live_programs else arriving
        engines = f"engines {scenario.engines}, balancer {scenario.balancer.policy}, policy {scenario.policy}"
        return f"{scenario.programs} programs of {scenario.workload}, {arriving}, {engines}, seed {scenario.seed}"

    def as_json(self) -> bytes:
        """Return the run as JSON; equal scenarios give equal bytes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def summary(
    rows: Sequence[ProgramRow],
    engines: Sequence[EngineRow],
    *,
    programs_finished: int,
    working_set: float,
    virtual_ms: float,
    limit_hit: bool,
) -> Summary:
    """Return the numbers of a run.

    Args:
        rows: The measured programs.
        engines: All engines.
        programs_finished: How many programs finished, measured or not.
        working_set: Contexts of live programs over the engines' room, on the mean.
        virtual_ms: How long the run was.
        limit_hit: Whether it was ended by its limit.
    """
    finished = [row for row in rows if row.outcome == "finished"]
    total = [engine.counters for engine in engines]
    prompt_tokens = sum(each.prompt_tokens for each in total)
    return Summary(
        measured=len(rows),
        finished=len(finished),
        failed=sum(row.outcome == "failed" for row in rows),
        unfinished=sum(row.outcome == "unfinished" for row in rows),
        limit_hit=limit_hit,
        virtual_ms=virtual_ms,
        ms_per_token=spread(row.ms_per_token for row in finished),
        response_ms=spread(row.response_ms for row in finished),
        jct_ms=spread(row.jct_ms for row in finished),
        wait_ms=spread(row.wait_ms for row in finished),
        wait_share=spread(row.wait_share for row in finished),
        service_ms=spread(row.service_ms for row in finished),
        programs_per_s=programs_finished * 1000 / virtual_ms,
        output_tokens_per_s=sum(each.output_tokens for each in total) * 1000 / virtual_ms,
        prefix_hit_rate=sum(each.cached_tokens for each in total) / max(prompt_tokens, 1),
        working_set=working_set,
        preemptions=sum(each.preemptions for each in total),
    )
