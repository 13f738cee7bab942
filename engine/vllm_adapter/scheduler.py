"""vLLM's scheduler, in the order of programs: the policy's queues, preemption at the slot limit, service per call.

Rules:
* vLLM chooses the batch; this class only orders what it chooses from. It sorts the waiting and the running requests by
  rank, and frees a slot for a waiting one that is in a strictly better queue than the worst running one.
* A newcomer takes a slot, never KV blocks: the victim is preempted only when the newcomer fits in the free blocks and
  the victim's. When vLLM itself runs out of blocks its victim is the last of `running`: the worst rank.
* Service is the duration of the steps a call was in, from when the step could begin (scheduled, and the one before it
  done) to its output; so idle gaps are not charged, and prefill is. It is charged before vLLM ends any request of the
  step, and every request leaves through `_free_request`, so no way out is free.
* Several requests of one call (n > 1, several prompts) are one call: charged once a step, waiting only when none runs.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from autellix.engine.policy import policy_named
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues, Rank
from autellix.engine.vllm_adapter.calls import EngineCalls
from autellix.engine.vllm_adapter.lifetime import die_with_parent
from autellix.engine.vllm_adapter.options import from_config
from autellix.engine.vllm_adapter.reports import Busy, ReportSender
from autellix.engine.vllm_adapter.request_queue import ProgramRequestQueue

BUSY_REPORT_MS = 100.0


def _now_ms() -> float:
    return time.monotonic() * 1000


class ProgramScheduler(AsyncScheduler):
    """Given to vLLM by `scheduler_cls`; its options come in `additional_config`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        die_with_parent()
        super().__init__(*args, **kwargs)
        self.options = from_config(self.vllm_config.additional_config)
        ladder = Ladder.doubling(first_quantum_ms=self.options.first_quantum_ms, queues=self.options.queues)
        queues = CallQueues(policy_named(self.options.policy), ladder, beta=self.options.beta)
        self._reports = ReportSender(self.options.report_socket)
        self._calls = EngineCalls(queues, self._reports)
        self.waiting = self._program_waiting = ProgramRequestQueue(self._rank_of)
        self.kv_holding_waiting = self._program_holding = ProgramRequestQueue(self._rank_of)
        self._step_starts: deque[float] = deque()
        self._last_output_ms = 0.0
        self._busy_reported_ms = 0.0

    def add_request(self, request: Request) -> None:
        """Let a request wait at its program's rank."""
        if request.request_id not in self.requests:
            self._calls.add(request, _now_ms())
        super().add_request(request)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:  # noqa: FBT001, FBT002 - vLLM's signature
        """Choose the next step's batch."""
        now_ms = _now_ms()
        if self.current_step % self.options.policy_interval_steps == 0:
            self._apply_policy(now_ms)
        output = super().schedule(throttle_prefills)
        self._step_starts.append(now_ms)
        self._calls.started([self.requests[request_id] for request_id in output.num_scheduled_tokens], now_ms)
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Charge a finished step to its calls, then let vLLM take in its tokens."""
        now_ms = _now_ms()
        began_ms = max(self._step_starts.popleft(), self._last_output_ms)
        self._last_output_ms = now_ms
        self._rerank(self._calls.charge(scheduler_output.num_scheduled_tokens, now_ms - began_ms))
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if now_ms - self._busy_reported_ms >= BUSY_REPORT_MS or not self.requests:
            self._report_busy(now_ms)
        return outputs

    def _apply_policy(self, now_ms: float) -> None:
        """Put everything in the order of the policy and make room for who is strictly better."""
        self._rerank(self._calls.promoted(now_ms))
        self.running.sort(key=self._rank_of)
        self._make_room(now_ms)

    def _rerank(self, requests: Iterable[Request]) -> None:
        """Move those of `requests` that wait to the rank they have now."""
        for request in requests:
            self._program_waiting.rerank(request)
            self._program_holding.rerank(request)

    def _make_room(self, now_ms: float) -> None:
        """Preempt the worst running requests for waiting ones in strictly better queues, at the slot limit."""
        full = len(self.running) + self.num_waiting_for_streaming_input >= self.max_num_active_reqs
        if not (full and self.waiting):
            return
        for newcomer in self._program_waiting.first(self.options.preemptions_per_step_max):
            if not self.running or not self._displaces(newcomer, self.running[-1]):
                return
            self._preempt_request(self.running.pop(), now_ms / 1000)

    def _displaces(self, newcomer: Request, victim: Request) -> bool:
        """Tell whether a waiting request takes a running one's slot: strictly better queue, able to run, and fits."""
        if self._rank_of(newcomer)[0] >= self._rank_of(victim)[0]:
            return False
        if self._is_blocked_waiting_status(newcomer.status) or newcomer.num_stale_output_tokens:
            return False
        return self._request_blocks_can_be_freed(victim) and self._fits(newcomer, victim)

    def _fits(self, newcomer: Request, victim: Request) -> bool:
        manager = self.kv_cache_manager
        freed = max(len(blocks) for blocks in manager.get_block_ids(victim.request_id))
        needed = -(-newcomer.num_tokens // self.block_size)
        return needed <= manager.block_pool.get_num_free_blocks() + freed

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:  # noqa: FBT001, FBT002 - vLLM's signature
        """Let a running request wait again, in its place; whoever decided it."""
        self._calls.preempted(request, _now_ms())
        super()._preempt_request(request, timestamp, drop_stale_output)

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:  # noqa: FBT001, FBT002 - vLLM's signature
        """Close a request's account, however it ended."""
        self._calls.ended(request, _now_ms())
        return super()._free_request(request, delay_free_blocks)

    def _rank_of(self, request: Request) -> Rank:
        return self._calls.rank_of(request)

    def _report_busy(self, now_ms: float) -> None:
        self._busy_reported_ms = now_ms
        running, waiting = self.get_request_counts()
        usage = self.get_kv_cache_usage()
        self._reports.send(Busy(running=running, waiting=waiting, kv_usage=usage, steps=self.current_step))
