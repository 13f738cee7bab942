"""Calls and the vLLM requests they are made of.

The policy knows calls; vLLM knows requests, several to a call when n > 1. A call enters with its first request, runs
while any of them runs, and leaves with its last.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm.v1.request import Request

from autellix.engine.executor import Preempted, Resumed, Started
from autellix.engine.policy.queues import CallQueues, QueuedCall, Rank
from autellix.engine.vllm_adapter.options import from_xargs
from autellix.engine.vllm_adapter.reports import Ended, ReportSender
from autellix.schemas.ids import CallId


@dataclass(eq=False)
class EngineCallState:
    """One call's requests and what was counted of those that ended."""

    queued: QueuedCall
    live: dict[str, Request] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    was_started: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def count(self, request: Request) -> None:
        """Add the tokens of a request that ends; its prompt is the same for all n of them."""
        self.prompt_tokens = max(self.prompt_tokens, request.num_prompt_tokens)
        self.output_tokens += request.num_output_tokens


class EngineCalls:
    """Every call in the scheduler."""

    def __init__(self, queues: CallQueues, reports: ReportSender) -> None:
        self._queues = queues
        self._reports = reports
        self._of_call: dict[CallId, EngineCallState] = {}
        self._of_request: dict[str, EngineCallState] = {}

    def add(self, request: Request, now_ms: float) -> None:
        """Let a request wait, as part of its call."""
        params = request.sampling_params
        call_id, facts = from_xargs(params.extra_args if params else None, request.request_id)
        state = self._of_call.get(call_id)
        if state is None:
            state = self._of_call[call_id] = EngineCallState(self._queues.add(call_id, facts, now_ms))
        state.live[request.request_id] = request
        self._of_request[request.request_id] = state

    def rank_of(self, request: Request) -> Rank:
        """Return the rank of the request's call."""
        return self._of_request[request.request_id].queued.rank

    def started(self, requests: Iterable[Request], now_ms: float) -> None:
        """Note which requests are in the batch."""
        for request in requests:
            state = self._of_request[request.request_id]
            was_running = bool(state.running)
            if not was_running:
                self._queues.start(state.queued.call_id, now_ms)
            state.running.add(request.request_id)
            if not state.was_started:
                state.was_started = True
                if request.prefill_stats:  # vLLM fills it at the first admission and takes it at the first token
                    state.cached_tokens = request.prefill_stats.num_cached_tokens
                self._reports.send(Started(state.queued.call_id, state.queued.wait_ms))
            elif not was_running:
                self._reports.send(Resumed(state.queued.call_id))

    def preempted(self, request: Request, now_ms: float) -> None:
        """Note that a running request waits again."""
        state = self._of_request[request.request_id]
        state.running.discard(request.request_id)
        if not state.running:
            self._queues.preempt(state.queued.call_id, now_ms)
            self._reports.send(Preempted(state.queued.call_id))

    def promoted(self, now_ms: float) -> list[Request]:
        """Return the requests whose rank a promotion changed."""
        promoted = self._queues.promote(now_ms)
        return [request for queued in promoted for request in self._of_call[queued.call_id].live.values()]

    def charge(self, request_ids: Iterable[str], step_ms: float) -> list[Request]:
        """Charge one step to every call that had a request in it; return the requests whose rank that changed.

        A call that was aborted meanwhile is gone, and one that was preempted meanwhile is charged where it waits.
        """
        states = {self._of_request[request_id] for request_id in request_ids if request_id in self._of_request}
        demoted = [state for state in states if self._queues.charge(state.queued.call_id, step_ms)]
        return [request for state in demoted for request in state.live.values()]

    def ended(self, request: Request, now_ms: float) -> None:
        """Note that a request left; with its last one the call leaves and is reported."""
        state = self._of_request.pop(request.request_id, None)
        if state is None:
            return
        state.count(request)
        del state.live[request.request_id]
        state.running.discard(request.request_id)
        if not state.live:
            self._report(state, now_ms)
        elif not state.running:
            self._queues.wait(state.queued.call_id, now_ms)

    def _report(self, state: EngineCallState, now_ms: float) -> None:
        call_id = state.queued.call_id
        del self._of_call[call_id]
        queued = self._queues.remove(call_id, now_ms)
        self._reports.send(
            Ended(
                call_id=call_id,
                service_ms=queued.service_ms,
                wait_ms=queued.wait_ms,
                preemptions=queued.preemptions,
                queues=tuple(queued.queues),
                prompt_tokens=state.prompt_tokens,
                cached_tokens=state.cached_tokens,
                output_tokens=state.output_tokens,
            )
        )
