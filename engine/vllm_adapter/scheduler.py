"""vLLM's scheduler, in the order of programs: the policy's queues, preemption at the slot limit, service per call.

Rules:
* vLLM chooses the batch; this class only orders what it chooses from. It keeps the waiting and the running requests in
  order of rank, and frees a slot for a waiting one that is strictly better than the worst running one.
* A newcomer takes a slot, never KV blocks: it must fit in the blocks that are free before its victim is put out. When
  vLLM itself runs out of blocks its victim is the last of `running`: the worst rank.
* Nobody is put out while the budget for computing again is used up (`policy/budget.py`), nor for a newcomer that may
  not be let in because the engine is paused.
* While blocks are plenty, decodes stand before unfinished prefills, whatever their ranks: a decode costs one token of
  the step's budget, a long prefill would take all of it and stall them.
* Service is the duration of the steps a call was in, from when the step could begin (scheduled, and the one before it
  done) to its output; so idle gaps are not charged, and prefill is. It is charged before vLLM ends any request of the
  step, and every request leaves through `_free_request`, so no way out is free.
* Several requests of one call (n > 1, several prompts) are one call: charged once a step, waiting only when none runs.
* With a gate (`engine_gate.py`) vLLM chooses among those requests only that passed it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from autellix.engine.executor import Load, ProgramOver
from autellix.engine.policy import call_queues, policy_named
from autellix.engine.policy.displacement import displacements
from autellix.engine.policy.pressure import Pressure
from autellix.engine.vllm_adapter.calls import EngineCalls, StepChange
from autellix.engine.vllm_adapter.conformance import check_scheduler, check_version
from autellix.engine.vllm_adapter.engine_gate import engine_gate
from autellix.engine.vllm_adapter.lifetime import die_with_parent
from autellix.engine.vllm_adapter.notices import NoticeReceiver
from autellix.engine.vllm_adapter.options import SchedulerOptions, from_config
from autellix.engine.vllm_adapter.reports import Busy, ReportSender
from autellix.engine.vllm_adapter.request_queue import ProgramRequestQueue
from autellix.engine.vllm_adapter.running_order import RunningOrder
from autellix.schemas.messages import Priorities

BUSY_REPORT_MS = 250.0
IDLE_PATIENCE_MS = 2000


def now_ms() -> float:
    """Return a clock that does not go back, in milliseconds."""
    return time.monotonic() * 1000


class Step(NamedTuple):
    """A step that was scheduled and whose output has not come yet."""

    scheduled_at_ms: float
    change: StepChange
    recomputed_share: float
    """Of its tokens, those that preempted calls compute again."""
    prompt_tokens: int
    """Of calls that have not brought a token since they were let in; 0 without a gate, which alone asks."""


class ProgramScheduler(Scheduler):
    """It is chosen by `schedulers.py`; its options come in vLLM's `additional_config`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        die_with_parent()
        super().__init__(*args, **kwargs)
        options = from_config(self.vllm_config.additional_config)
        check_version(allow_untested=options.allow_untested_vllm)
        check_scheduler(self)
        self._reports = ReportSender(options.report_socket)
        self._notices = NoticeReceiver(options.notice_socket)
        self._busy_reported_ms = 0.0
        self.running: list[Request] = []
        self._follow(options)

    def _follow(self, options: SchedulerOptions) -> None:
        """Go by these options from now on; there are no requests yet."""
        self.options = options
        self._steps: deque[Step] = deque()
        self._last_output_ms = 0.0
        self._recomputing: set[str] = set()
        """Requests that were preempted and compute again what they had."""
        self._queues = call_queues(
            policy_named(options.policy),
            first_quantum_ms=options.first_quantum_ms,
            queues=options.queues,
            beta=options.beta,
            fit_ladder=options.fit_ladder,
        )
        self._calls = EngineCalls(self._queues, self._reports)
        self._order = RunningOrder(self._calls.rank_of)
        self.waiting = self._program_waiting = ProgramRequestQueue(self._calls.rank_of)
        self.kv_holding_waiting = self._program_holding = ProgramRequestQueue(self._calls.rank_of)
        self._gate = engine_gate(options.gate, self, self._calls, self._program_waiting, self._reports)

    def add_request(self, request: Request) -> None:
        """Let a request wait at its program's rank, or at the gate."""
        if request.request_id in self.requests:  # more input for it
            super().add_request(request)
            return
        at_ms = now_ms()
        self._calls.add(request, at_ms)
        super().add_request(request)
        if self._gate:
            self._gate.arrived(request, at_ms)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:  # noqa: FBT001, FBT002 - vLLM's signature
        """Choose the next step's batch."""
        at_ms = now_ms()
        self._take_notices(at_ms)
        if self._gate:
            self._gate.open(at_ms)
        if self.current_step % self.options.policy_interval_steps == 0:
            self._apply_policy(at_ms)
        prefilling = {request.request_id for request in self._inflight_prefills} if self._gate else set()
        output = super().schedule(throttle_prefills)
        admitted = len(output.scheduled_new_reqs) + len(output.scheduled_cached_reqs.resumed_req_ids)
        entered = self.running[len(self.running) - admitted :]  # vLLM appends them, in the order of admission
        self._order.appended(entered)
        change = self._calls.scheduled(entered, self._skipped(output), at_ms)
        prompt_tokens = self._prompt_tokens(prefilling, entered, output) if self._gate else 0
        self._steps.append(Step(at_ms, change, self._recomputed_share(entered, output), prompt_tokens))
        self._reports.send()
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Charge a finished step to its calls, then let vLLM take in its tokens."""
        at_ms = now_ms()
        step = self._steps.popleft()
        began_ms = max(step.scheduled_at_ms, self._last_output_ms)
        self._last_output_ms = at_ms
        self._rerank(self._calls.charge(step.change, at_ms - began_ms, step.recomputed_share))
        if self._gate:
            counts = {"prompt_tokens": step.prompt_tokens, "tokens": scheduler_output.total_num_scheduled_tokens}
            self._gate.step(at_ms - began_ms, model_runner_output, **counts, now_ms=at_ms)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if at_ms - self._busy_reported_ms >= BUSY_REPORT_MS or not self.requests:
            self._report_busy(at_ms)
        self._send_reports()  # before vLLM sends the step's outputs: the report is there when the worker sees the end
        return outputs

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """End requests from outside, as an abort does."""
        finished = super().finish_requests(request_ids, finished_status)
        self._send_reports()
        return finished

    def _take_notices(self, at_ms: float) -> None:
        """Take in what the worker has told."""
        for notice in self._notices.receive():
            match notice:
                case Priorities():
                    self._queues.learn(notice)
                case ProgramOver() if self._gate:
                    self._gate.over(notice.program_id, at_ms)

    def _send_reports(self) -> None:
        """Send what is noted; with nothing left to do there is time to wait for a worker that does not read."""
        self._reports.send(patience_ms=0 if self.requests else IDLE_PATIENCE_MS)

    @staticmethod
    def _prompt_tokens(prefilling: Set[str], entered: Iterable[Request], output: SchedulerOutput) -> int:
        """Return how many tokens of a step are of prompts: of who was prefilling before it, and of who enters."""
        prompts = prefilling | {request.request_id for request in entered}
        return sum(output.num_scheduled_tokens.get(request_id, 0) for request_id in prompts)

    def _recomputed_share(self, entered: Iterable[Request], output: SchedulerOutput) -> float:
        """Return which share of a step's tokens preempted requests had computed before."""
        self._recomputing |= {request.request_id for request in entered if request.num_preemptions}
        if not self._recomputing:
            return 0.0
        scheduled: dict[str, int] = output.num_scheduled_tokens
        tokens = sum(scheduled.get(request_id, 0) for request_id in self._recomputing)
        self._recomputing = {
            request_id
            for request_id in self._recomputing
            if request_id in self.requests and self.requests[request_id].is_prefill_chunk
        }
        return tokens / max(1, output.total_num_scheduled_tokens)

    def _skipped(self, output: SchedulerOutput) -> Set[str]:
        """Return the running requests that are not in the step."""
        scheduled: dict[str, int] = output.num_scheduled_tokens
        if len(scheduled) == len(self.running):
            return frozenset()
        return {request.request_id for request in self.running} - scheduled.keys()

    def _apply_policy(self, at_ms: float) -> None:
        """Put everything in the order of the policy and make room for who is strictly better."""
        self._rerank(self._calls.promoted(at_ms))
        self._order.restore(self.running)
        self._make_room(at_ms)
        self._put_decodes_first()

    def _rerank(self, requests: Iterable[Request]) -> None:
        """Move `requests` to the rank they have now: at once where they wait, with the next policy step where not."""
        for request in requests:
            if request.status == RequestStatus.RUNNING:
                self._order.moved(request)
            else:
                self._program_waiting.rerank(request)
                self._program_holding.rerank(request)
                if self._gate:
                    self._gate.reranked(request, now_ms())

    def _make_room(self, at_ms: float) -> None:
        """Preempt the worst running requests for strictly better waiting ones."""
        if self._queues.budget.opens_in_ms or self._pause_state != PauseState.UNPAUSED:
            return
        free_slots = self.max_num_active_reqs - len(self.running) - self.num_waiting_for_streaming_input
        if not self.waiting or (free_slots <= 0 and not self._is_better_waiting()):
            return
        victims = displacements(
            self._program_waiting.best_first(),
            (request for request in reversed(self.running) if self._may_give_way(request)),
            outranks=self._calls.outranks,
            fits=self._fits(),
            free_slots=free_slots,
            most=self.options.preemptions_per_step_max,
        )
        for victim in victims:
            self.running.remove(victim)
            self._preempt_request(victim, at_ms / 1000)

    def _is_better_waiting(self) -> bool:
        return bool(self.running) and self._calls.outranks(self._program_waiting.peek_request(), self.running[-1])

    def _may_give_way(self, request: Request) -> bool:
        return not request.is_prefill_chunk and self._request_blocks_can_be_freed(request)

    def _fits(self) -> Callable[[Request], bool | None]:
        """Return what tells whether one more newcomer fits in the free blocks, beside those asked about before."""
        manager = self.kv_cache_manager
        free: int = manager.block_pool.get_num_free_blocks() - manager.watermark_blocks

        def fits(newcomer: Request) -> bool | None:
            nonlocal free
            if self._is_blocked_waiting_status(newcomer.status) or newcomer.num_stale_output_tokens:
                return None
            needed = -(-newcomer.num_tokens // self.block_size)
            if needed > free:  # the prefix that running requests hold is shared and takes no free block
                cached, _, _ = manager.get_computed_blocks(newcomer)
                needed -= sum(block.ref_cnt > 0 for block in cached.blocks[0])
            free -= needed
            return free >= 0

        return fits

    def _put_decodes_first(self) -> None:
        """Move unfinished prefills behind the decodes, if no block can be short in this step."""
        if not self._inflight_prefills:
            return
        most_blocks = 2 * len(self.running) + self.max_num_scheduled_tokens // self.block_size
        if self.kv_cache_manager.block_pool.get_num_free_blocks() >= most_blocks:
            prefills = [request for request in self.running if request in self._inflight_prefills]
            self.running = [request for request in self.running if request not in self._inflight_prefills] + prefills
            self._order.appended(prefills)

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:  # noqa: FBT001, FBT002 - vLLM's signature
        """Let a running request wait again, in its place; whoever decided it."""
        self._calls.preempted(request, now_ms())
        self._order.forget(request)
        super()._preempt_request(request, timestamp, drop_stale_output)

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:  # noqa: FBT001, FBT002 - vLLM's signature
        """Close a request's account, however it ended."""
        freed = super()._free_request(request, delay_free_blocks)
        at_ms = now_ms()
        if self._gate:
            self._gate.ended(request, at_ms)
        self._calls.ended(request, at_ms)
        self._order.forget(request)
        return freed

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:  # noqa: FBT001, FBT002 - vLLM's signature
        """Forget what is cached."""
        was_reset = super().reset_prefix_cache(reset_running_requests, reset_connector)
        if was_reset and self._gate:
            self._gate.cache_was_reset()
        return was_reset

    def shutdown(self) -> None:
        """Let go of what the scheduler holds."""
        self._reports.close()
        self._notices.close()
        super().shutdown()

    def _report_busy(self, at_ms: float) -> None:
        self._busy_reported_ms = at_ms
        pressure = self._gate.pressure(at_ms) if self._gate else Pressure()
        running, waiting = self.get_request_counts()
        load = Load(running, waiting, self.get_kv_cache_usage(), self.current_step, **pressure._asdict())
        self._reports.note(Busy(load=load))
