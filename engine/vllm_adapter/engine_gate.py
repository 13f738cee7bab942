"""The gate (`engine/policy/gate.py`) before vLLM's scheduler: which requests it may choose from.

Rules:
* All requests of one call (n > 1, several prompts) pass together. On arrival the first speaks for the call; what all of
  them computed is what the call leaves to its thread.
* A request that came past the worker is a program of its own, over with its call.
* The gate is for models with one group of layers, all of full attention, and with a prefix cache that nobody but vLLM
  itself moves blocks in. For others there is none: every call passes. Of the connectors that keep KV elsewhere it knows
  vLLM's own copies in CPU memory, and budgets on them (`cpu_tier.py`).
"""

from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from autellix.engine.executor import Held
from autellix.engine.policy import gate_named
from autellix.engine.policy.claims import Chain
from autellix.engine.policy.gate import Gate
from autellix.engine.policy.pressure import Pressure
from autellix.engine.vllm_adapter.calls import EngineCalls
from autellix.engine.vllm_adapter.cpu_tier import CpuTier, cpu_tier
from autellix.engine.vllm_adapter.program_blocks import ProgramBlocks
from autellix.engine.vllm_adapter.reports import ReportSender
from autellix.engine.vllm_adapter.request_queue import ProgramRequestQueue
from autellix.schemas.ids import CallId, ProgramId

log = init_logger(f"vllm.{__name__}")  # below vLLM's own, which has a handler in the engine-core process


class EngineGate:
    """The gate of one scheduler.

    Args:
        gate: Decides who passes.
        blocks: vLLM's prefix cache.
        block_tokens: Tokens in a block.
        calls: The scheduler's calls.
        waiting: Its waiting requests.
        reports: Where to tell that a call is held.
        tier: Where copies of blocks are kept in CPU memory, if anywhere.
    """

    def __init__(
        self,
        gate: Gate,
        blocks: ProgramBlocks,
        block_tokens: int,
        calls: EngineCalls,
        waiting: ProgramRequestQueue,
        reports: ReportSender,
        tier: CpuTier | None = None,
    ) -> None:
        self._gate = gate
        self._blocks = blocks
        self._block_tokens = block_tokens
        self._calls = calls
        self._waiting = waiting
        self._reports = reports
        self._tier = tier
        self._computed: dict[CallId, list[Chain]] = {}
        """By live call, what those of its requests computed that have ended."""

    def arrived(self, request: Request, now_ms: float) -> None:
        """Hold a request that waits, unless its call passes."""
        queued = self._calls.of(request).queued
        if queued.call_id not in self._computed:
            self._computed[queued.call_id] = []
            self._call_arrived(request, now_ms)
        if self._gate.is_held(queued.call_id):
            self._waiting.hold(request)

    def _call_arrived(self, request: Request, now_ms: float) -> None:
        state, tokens = self._calls.of(request), request.num_prompt_tokens
        call_id = state.queued.call_id
        prompt = request.block_hashes[: tokens // self._block_tokens]
        if not self._gate.arrive(state.queued, state.facts.thread_id, prompt, tokens, now_ms):
            self.open(now_ms)
            if self._gate.is_held(call_id):
                self._reports.note(Held(call_id, **self._gate.why_held(call_id)._asdict()))

    def open(self, now_ms: float) -> None:
        """Let those calls wait in the scheduler that pass now."""
        for request in self._calls.requests_of(self._gate.passing(now_ms)):
            self._waiting.let_pass(request)

    def reranked(self, request: Request, now_ms: float) -> None:
        """Note that the rank of a waiting request changed."""
        queued = self._calls.of(request).queued
        if self._gate.is_held(queued.call_id):
            self._gate.reranked(queued, now_ms)

    def ended(self, request: Request, now_ms: float) -> None:
        """Note that a request left and its blocks are free; its account is still open."""
        state = self._calls.of(request)
        call_id, computed = state.queued.call_id, self._computed[state.queued.call_id]
        computed.append(request.block_hashes[: _computed_tokens(request) // self._block_tokens])
        if len(state.live) > 1:
            return
        del self._computed[call_id]
        state.held_ms = self._gate.held_ms(call_id, now_ms)
        self._gate.left(call_id, computed, state.output_tokens + request.num_output_tokens, now_ms)
        if state.facts.came_past_the_worker:
            self._gate.over(state.facts.program_id, now_ms)

    def over(self, program_id: ProgramId, now_ms: float) -> None:
        """Note that a program is over."""
        self._gate.over(program_id, now_ms)

    def step(
        self, step_ms: float, output: ModelRunnerOutput, *, prompt_tokens: int, tokens: int, now_ms: float
    ) -> None:
        """Note how long a step took, what was in it, and what was copied from CPU memory meanwhile."""
        if self._tier:
            self._gate.time.copied(*self._tier.copied(output))
        if tokens:
            self._gate.step(step_ms, prompt_tokens=prompt_tokens, tokens=tokens, now_ms=now_ms)

    def cache_was_reset(self) -> None:
        """Note that vLLM evicted everything."""
        self._blocks.was_reset()

    def pressure(self, now_ms: float) -> Pressure:
        """Return how scarce room is."""
        return self._gate.pressure(now_ms)


def _computed_tokens(request: Request) -> int:
    """Return how many tokens of a request that ended may be in cached blocks; vLLM caches what a step will fill."""
    tokens: int = request.num_tokens
    computed: int = request.num_computed_tokens
    if request.num_preemptions and computed < tokens - 1:
        return tokens  # it was to compute them again, and those it had may still be there
    return min(computed, tokens)


def engine_gate(
    name: str, scheduler: Any, calls: EngineCalls, waiting: ProgramRequestQueue, reports: ReportSender
) -> EngineGate | None:
    """Return the gate of a scheduler, or None if it has none: because it is off, or because of how blocks are kept.

    Args:
        name: One of `engine.policy.GATES`.
        scheduler: vLLM's; its KV cache is empty.
        calls: Its calls.
        waiting: Its waiting requests.
        reports: Where to tell that a call is held.
    """
    if name == "off":
        return None
    if why := _why_off(scheduler):
        log.warning("The gate is off: %s.", why)
        return None
    manager, tier = scheduler.kv_cache_manager, cpu_tier(scheduler.connector)
    blocks, block_tokens = (
        ProgramBlocks(manager.block_pool, tier),
        manager.coordinator.single_type_managers[0].block_size,
    )
    count = manager.block_pool.num_gpu_blocks - 1  # one is vLLM's placeholder
    tier_blocks = tier.blocks if tier else 0
    gate = gate_named(name, blocks=count, block_tokens=block_tokens, cache=blocks, tier_blocks=tier_blocks)
    if tier_blocks > count:
        log.info("The gate budgets on %d tokens in CPU memory.", tier_blocks * block_tokens)
    return EngineGate(gate, blocks, block_tokens, calls, waiting, reports, tier) if gate else None


def _why_off(scheduler: Any) -> str:
    """Return why a scheduler can have no gate; nothing if it can."""
    manager = scheduler.kv_cache_manager
    if not manager.enable_caching:
        return "prefix caching is off, so there is nothing to keep"
    if scheduler.connector is not None and cpu_tier(scheduler.connector) is None:
        return "a KV connector keeps blocks, too"
    if [type(each) for each in manager.coordinator.single_type_managers] != [FullAttentionManager]:
        return "the model has other attention than full, or several groups of layers"
    return ""
