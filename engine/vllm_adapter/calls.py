"""Calls and the vLLM requests they are made of.

The policy knows calls; vLLM knows requests, several to a call when n > 1. A call enters with its first request, runs
while any of them runs, is charged for each step that any of them is in, and leaves with its last.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm.v1.request import Request

from autellix.engine.executor import Preempted, Resumed, Started
from autellix.engine.policy.call import QueuedCall, Rank
from autellix.engine.policy.queues import CallQueues
from autellix.engine.vllm_adapter.options import CallFacts, from_xargs
from autellix.engine.vllm_adapter.reports import Ended, ReportSender
from autellix.schemas.ids import CallId


@dataclass(eq=False)
class EngineCallState:
    """One call's requests and what was counted of those that ended."""

    queued: QueuedCall
    facts: CallFacts
    live: dict[str, Request] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    in_step: set[str] = field(default_factory=set)
    """The running requests that are in the step scheduled last."""
    was_started: bool = False
    prompts: dict[str, int] = field(default_factory=dict)
    """Tokens of each of its prompts; the n requests for one prompt share it."""
    cached: dict[str, int] = field(default_factory=dict)
    """Those of them that the first request of each prompt found in the prefix cache."""
    output_tokens: int = 0
    held_ms: float = 0.0

    def count(self, request: Request) -> None:
        """Add the tokens of a request that ends."""
        self.prompts[_prompt_of(request)] = request.num_prompt_tokens
        self.output_tokens += request.num_output_tokens

    def note_cached(self, request: Request) -> None:
        """Note what a request found in the prefix cache when it was let in first."""
        if request.prefill_stats:  # vLLM fills it at the first admission and takes it at the first token
            self.cached.setdefault(_prompt_of(request), request.prefill_stats.num_cached_tokens)


def _prompt_of(request: Request) -> str:
    """Name the prompt of a request: vLLM numbers the n requests for one prompt in front of its id."""
    request_id: str = request.request_id
    number, _, parent = request_id.partition("_")
    return parent if number.isdecimal() else request_id


class StepChange(NamedTuple):
    """Which calls a step has, beside those of the step before it."""

    left: list[CallId]
    joined: list[CallId]


class EngineCalls:
    """Every call in the scheduler."""

    def __init__(self, queues: CallQueues, reports: ReportSender) -> None:
        self._queues = queues
        self._reports = reports
        self._of_call: dict[CallId, EngineCallState] = {}
        self._of_request: dict[str, EngineCallState] = {}
        self._left: list[CallId] = []
        """Calls that were put out since the last step was scheduled."""
        self._skipped: Set[str] = frozenset()
        """Running requests that are not in the step scheduled last."""

    def add(self, request: Request, now_ms: float) -> None:
        """Let a request wait, as part of its call."""
        params = request.sampling_params
        facts = from_xargs(params.extra_args if params else None, request.request_id)
        state = self._of_call.get(facts.call_id)
        if state is None:
            queued = self._queues.add(facts.call_id, facts.program_id, facts.program, now_ms, priority=request.priority)
            state = self._of_call[facts.call_id] = EngineCallState(queued, facts)
        state.live[request.request_id] = request
        self._of_request[request.request_id] = state

    def of(self, request: Request) -> EngineCallState:
        """Return the call of a request that is in."""
        return self._of_request[request.request_id]

    def rank_of(self, request: Request) -> Rank:
        """Return the rank of the request's call."""
        return self._of_request[request.request_id].queued.rank

    def outranks(self, newcomer: Request, victim: Request) -> bool:
        """Tell whether a waiting request's call may displace a running one's."""
        return self._of_request[newcomer.request_id].queued.outranks(self._of_request[victim.request_id].queued)

    def scheduled(self, entered: Iterable[Request], skipped: Set[str], now_ms: float) -> StepChange:
        """Note the batch of the step that was just scheduled.

        Args:
            entered: Requests that run in it and did not run before.
            skipped: Running requests that are not in it.
            now_ms: When it was scheduled.
        """
        change = StepChange(self._left, [])
        self._left = []
        for request in entered:
            self._begin(request, now_ms)
            self._board(request.request_id, change)
        if skipped or self._skipped:
            for request_id in self._skipped - skipped:
                self._board(request_id, change)
            for request_id in skipped - self._skipped:
                self._alight(self._of_request[request_id], request_id, change.left)
        self._skipped = skipped
        return change

    def _begin(self, request: Request, now_ms: float) -> None:
        """Note that a waiting request runs."""
        state = self._of_request[request.request_id]
        call_id = state.queued.call_id
        was_running = bool(state.running)
        state.running.add(request.request_id)
        if not was_running:
            self._queues.start(call_id, now_ms)
        state.note_cached(request)
        if not state.was_started:
            state.was_started = True
            self._reports.note(Started(call_id, state.queued.wait_ms))
        elif not was_running:
            self._reports.note(Resumed(call_id))

    def _board(self, request_id: str, change: StepChange) -> None:
        state = self._of_request.get(request_id)
        if state and request_id in state.running:
            if not state.in_step:
                change.joined.append(state.queued.call_id)
            state.in_step.add(request_id)

    def _alight(self, state: EngineCallState, request_id: str, left: list[CallId]) -> None:
        if request_id in state.in_step:
            state.in_step.discard(request_id)
            if not state.in_step:
                left.append(state.queued.call_id)

    def preempted(self, request: Request, now_ms: float) -> None:
        """Note that a running request waits again."""
        state = self._of_request[request.request_id]
        state.running.discard(request.request_id)
        self._alight(state, request.request_id, self._left)
        if not state.running:
            self._queues.preempt(state.queued.call_id, now_ms)
            self._reports.note(Preempted(state.queued.call_id))

    def promoted(self, now_ms: float) -> list[Request]:
        """Return the requests whose rank a promotion changed."""
        return self.requests_of(self._queues.promote(now_ms))

    def charge(self, change: StepChange, step_ms: float, recomputed_share: float = 0.0) -> list[Request]:
        """Charge one step to every call that was in it; return the requests whose rank that changed.

        A call that was aborted meanwhile is gone, and one that was preempted meanwhile is charged where it waits.
        """
        for call_id in change.left:
            if call_id in self._of_call:
                self._queues.leave(call_id)
        for call_id in change.joined:
            if call_id in self._of_call:
                self._queues.join(call_id)
        return self.requests_of(self._queues.charge(step_ms, recomputed_ms=recomputed_share * step_ms))

    def ended(self, request: Request, now_ms: float) -> None:
        """Note that a request left; with its last one the call leaves and is reported."""
        state = self._of_request.pop(request.request_id, None)
        if state is None:
            return
        state.count(request)
        del state.live[request.request_id]
        state.running.discard(request.request_id)
        self._alight(state, request.request_id, self._left)
        if not state.live:
            self._report(state, now_ms)
        elif not state.running:
            self._queues.wait(state.queued.call_id, now_ms)

    def requests_of(self, calls: list[QueuedCall]) -> list[Request]:
        """Return the requests of calls, those of one call together."""
        return [request for queued in calls for request in self._of_call[queued.call_id].live.values()]

    def _report(self, state: EngineCallState, now_ms: float) -> None:
        call_id = state.queued.call_id
        del self._of_call[call_id]
        queued = self._queues.remove(call_id, now_ms)
        self._reports.note(
            Ended(
                call_id=call_id,
                service_ms=queued.service_ms,
                wait_ms=queued.wait_ms,
                held_ms=state.held_ms,
                preemptions=queued.preemptions,
                queues=tuple(queued.queues),
                prompt_tokens=sum(state.prompts.values()),
                cached_tokens=sum(state.cached.values()),
                output_tokens=state.output_tokens,
            )
        )
