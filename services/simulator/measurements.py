"""Notes how the measured programs go, and makes the rows of the result."""

from statistics import fmean

from autellix.schemas.messages import EngineEvent, EngineLoad
from autellix.services.simulator.agent import Agent, EndedCall, Path
from autellix.services.simulator.results import CallRow, Outcome, ProgramRow
from autellix.services.simulator.scenario import Scenario


class Measurements:
    """The measured programs: those between two shares of the arrivals."""

    def __init__(self, scenario: Scenario) -> None:
        first = min(round(scenario.measure_from * scenario.programs), scenario.programs - 1)
        self._numbers = range(first, max(round(scenario.measure_to * scenario.programs), first + 1))
        self._keep_calls = scenario.keep_calls
        self._keep_loads = scenario.keep_loads
        self._rows: dict[int, ProgramRow] = {}
        self.calls: list[CallRow] = []
        self.loads: list[EngineLoad] = []
        self.programs_finished = 0
        """Measured or not."""
        self._working_sets: list[float] = []

    @property
    def complete(self) -> bool:
        """Tell whether every measured program is over."""
        return len(self._rows) == len(self._numbers)

    def call_ended(self, agent: Agent, ended: EndedCall) -> None:
        """Note a call, if calls are kept."""
        if self._keep_calls and agent.number in self._numbers:
            self.calls.append(_call_row(agent, ended))

    def engine_event(self, event: EngineEvent) -> None:
        """Note a heartbeat, if they are kept."""
        if self._keep_loads and isinstance(event, EngineLoad):
            self.loads.append(event)

    def working_set(self, share: float) -> None:
        """Note how much of the engines' room the contexts of all live programs would take."""
        self._working_sets.append(share)

    @property
    def mean_working_set(self) -> float:
        """Return what was noted, over the middle of the run."""
        seen = self._working_sets
        middle = seen[len(seen) // 5 : len(seen) - len(seen) // 5] or seen or [0.0]
        return fmean(middle)

    def over(self, agent: Agent, now_ms: float) -> None:
        """Note a program that ended or failed."""
        self.programs_finished += not agent.failed
        if agent.number in self._numbers:
            self._rows[agent.number] = _row(agent, "failed" if agent.failed else "finished", now_ms)

    def rows(self, left: dict[int, Agent], now_ms: float) -> list[ProgramRow]:
        """Return a row for each measured program that arrived; `left` are those that are not over."""
        unfinished = {
            number: _row(agent, "unfinished", now_ms) for number, agent in left.items() if number in self._numbers
        }
        return [row for _, row in sorted((self._rows | unfinished).items())]


def _row(agent: Agent, outcome: Outcome, now_ms: float) -> ProgramRow:
    events = [ended.event for ended in agent.ended.values()]
    path = agent.last.path if agent.last else Path()
    return ProgramRow(
        number=agent.number,
        trace=agent.arrival.trace,
        program=agent.name,
        outcome=outcome,
        arrived_at_ms=agent.arrival.at_ms,
        ended_at_ms=now_ms,
        interrupts_ms=path.interrupts_ms,
        response_ms=now_ms - agent.arrival.at_ms - path.interrupts_ms,
        path_wait_ms=path.wait_ms,
        path_service_ms=path.service_ms,
        wait_ms=sum(event.wait_ms for event in events),
        service_ms=sum(event.service_ms for event in events),
        calls=len(events),
        retries=agent.retries,
        prompt_tokens=sum(event.prompt_tokens for event in events),
        cached_tokens=sum(event.cached_tokens for event in events),
        output_tokens=sum(event.output_tokens for event in events),
        preemptions=sum(event.preemptions for event in events),
    )


def _call_row(agent: Agent, ended: EndedCall) -> CallRow:
    event = ended.event
    return CallRow(
        program=agent.number,
        call=ended.call.id,
        engine=str(event.engine_id),
        submitted_at_ms=ended.submitted_at_ms,
        ended_at_ms=event.at_ms,
        wait_ms=event.wait_ms,
        service_ms=event.service_ms,
        prompt_tokens=event.prompt_tokens,
        cached_tokens=event.cached_tokens,
        output_tokens=event.output_tokens,
        preemptions=event.preemptions,
        queues=event.queues,
    )
