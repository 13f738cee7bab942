"""Two steps in flight, as vLLM has them on a GPU, under any mix of calls, held against a slow, plain account.

On a CPU vLLM switches async scheduling off, so the engines of the other tests never have a step in flight. Here the
real scheduler is stepped without a model: its answers are made up, its clock and its calls are this file's.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from vllm import EngineArgs, SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from autellix.engine.executor import EngineCall, Preempted, Started
from autellix.engine.policy import POLICIES, fitting
from autellix.engine.vllm_adapter import models
from autellix.engine.vllm_adapter import scheduler as adapter
from autellix.engine.vllm_adapter.options import SchedulerOptions, to_config, to_xargs
from autellix.engine.vllm_adapter.reports import Ended, ReportReceiver
from autellix.engine.vllm_adapter.start import SCHEDULER
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

BLOCK = 16
BLOCKS = 64
BUDGET = 128
SLOTS = 4
IN_FLIGHT = 2
TOKEN, STOP = 300, 301
ABORTS = 0.03
STEP_MS = (0.0, 0.5, 2.0, 16.0)
"""Durations whose sums are exact, so that an account is right or wrong, never nearly right."""


@dataclass
class Life:
    """What the test saw of one call."""

    live: set[str]
    """Its requests that have not ended."""
    service_ms: float = 0.0
    wait_ms: float = 0.0
    preemptions: int = 0
    output_tokens: int = 0
    starts: int = 0


class Flight(NamedTuple):
    """A step that was scheduled, and the answer that is to come."""

    scheduled_at_ms: float
    calls: set[str]
    output: SchedulerOutput
    answer: ModelRunnerOutput


@dataclass
class World:
    """A scheduler without a model, its clock, and the account of its calls."""

    scheduler: Any
    receiver: ReportReceiver
    chance: random.Random
    now_ms: float = 0.0
    last_output_ms: float = 0.0
    lives: dict[str, Life] = field(default_factory=dict)
    flights: deque[Flight] = field(default_factory=deque)
    reported: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def add(
        self, prompts: list[list[int]], *, priority: int = 0, max_tokens: int = 30, n: int = 1, **facts: float
    ) -> str:
        """Let a call of a program of its own arrive; return its name. Of several prompts and n > 1 vLLM knows one."""
        name = f"c{len(self.lives)}"
        call = EngineCall(
            CallId(name), ProgramId(name), ThreadId("main"), "/v1/completions", {}, ProgramFacts(**facts)
        )
        several = {f"{name}-{number}": prompt for number, prompt in enumerate(prompts)}
        if n > 1:
            several = {f"{index}_{each}": prompt for (each, prompt), index in product(several.items(), range(n))}
        hashing = get_request_block_hasher(BLOCK, get_hash_fn_by_name("sha256"))
        for each, prompt in several.items():
            params = SamplingParams(max_tokens=max_tokens, stop_token_ids=[STOP], extra_args=to_xargs(call))
            self.scheduler.add_request(Request(each, prompt, params, None, priority=priority, block_hasher=hashing))
        self.lives[name] = Life(set(several))
        self.check()
        return name

    def abort_some(self) -> None:
        """End a request from outside, or a whole call, in one piece or not."""
        life = self.chance.choice([life for life in self.lives.values() if life.live] or [Life(set())])
        request_ids = set(self.chance.sample(sorted(life.live), k=self.chance.randint(0, len(life.live))))
        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)
        life.live -= request_ids
        self.check()

    def pass_time(self, ms: float) -> None:
        """Let time pass; a call waits while none of its requests runs."""
        self.now_ms += ms
        for life in self.lives.values():
            if life.live and not any(self.is_running(each) for each in life.live):
                life.wait_ms += ms

    def is_running(self, request_id: str) -> bool:
        """Tell whether vLLM runs a request."""
        return bool(self.scheduler.requests[request_id].status == RequestStatus.RUNNING)

    def turn(self) -> None:
        """Do what vLLM's engine core does with a batch queue: fill it first, then wait for the oldest step."""
        if self.scheduler.has_requests() and len(self.flights) < IN_FLIGHT:
            self.schedule()
            if len(self.flights) < IN_FLIGHT and (self.flights[-1].calls or self.scheduler.has_requests()):
                return
        if self.flights:
            self.update()

    def schedule(self) -> None:
        """Put one more step in flight."""
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        calls = {name for name, life in self.lives.items() if life.live & output.num_scheduled_tokens.keys()}
        answer = ModelRunnerOutput(names, {name: row for row, name in enumerate(names)}, [*map(self._tokens, names)])
        self.flights.append(Flight(self.now_ms, calls, output, answer))
        self.seen["skipped"] += len(self.scheduler.running) > len(names)
        self.check()

    def _tokens(self, request_id: str) -> list[int]:
        if self.scheduler.requests[request_id].is_prefill_chunk:
            self.seen["chunks"] += 1
            return []
        return [self.chance.choices([TOKEN, STOP], [30, 1])[0]]

    def update(self) -> None:
        """End the oldest step: charge it by the account, and hand its answer to the scheduler."""
        flight = self.flights.popleft()
        began_ms = max(flight.scheduled_at_ms, self.last_output_ms)
        self.pass_time(self.chance.choice(STEP_MS))
        if self.chance.random() < ABORTS:  # vLLM takes aborts in between a step's output and its update
            self.abort_some()
        self.last_output_ms = self.now_ms
        for life in (self.lives[name] for name in flight.calls):
            life.service_ms += (self.now_ms - began_ms) * bool(life.live)
            self.seen["charged while it waits"] += bool(life.live) and not any(map(self.is_running, life.live))
        for batch in self.scheduler.update_from_output(flight.output, flight.answer).values():
            for told in batch.outputs:
                life = next(life for life in self.lives.values() if told.request_id in life.live)
                life.output_tokens += len(told.new_token_ids)
                if told.finish_reason is not None:
                    life.live.remove(told.request_id)
        self.check()

    def finish(self) -> None:
        """Take turns until nothing is left to do, and some more, so that the policy has its step too."""
        for _ in range(5000):
            if not (self.scheduler.has_requests() or self.flights):
                break
            self.turn()
        for _ in range(self.scheduler.options.policy_interval_steps):
            self.schedule()
            self.update()

    def check(self) -> None:
        """Hold the scheduler, and what it reports, against the account."""
        self._check_reports()
        scheduler, calls = self.scheduler, self.scheduler._calls
        running = [request.request_id for request in scheduler.running]
        waiting = [request.request_id for request in scheduler.waiting]
        live = {each: name for name, life in self.lives.items() for each in life.live}
        assert sorted(live) == sorted(running + waiting) == sorted(scheduler.requests)
        assert set(running) == set(filter(self.is_running, live))
        assert waiting == [request.request_id for request in scheduler._program_waiting.best_first()]
        ranks = [calls.rank_of(request) for request in scheduler.waiting]
        assert sorted(ranks) == ranks
        assert set(live.values()) == set(calls._of_call)
        for name, state in calls._of_call.items():
            assert self.lives[name].live == state.live.keys()
            assert self.lives[name].live & set(running) == state.running
            assert bool(state.running) == (state.queued.waiting_since_ms is None)
            assert self.lives[name].service_ms == self._charged_ms(name)

    def _charged_ms(self, name: str) -> float:
        """Return what a call that is in was charged; the queues add it up only when they need it."""
        queues, call = self.scheduler._queues, self.scheduler._queues[name]
        since_ms = queues._clock_ms if call.in_batch_since_ms is None else call.in_batch_since_ms
        return float(call.service_ms + queues._clock_ms - since_ms)

    def _check_reports(self) -> None:
        for report in self.receiver.receive():
            match report:
                case Started(call_id=name):
                    self.lives[name].starts += 1
                case Preempted(call_id=name):
                    self.lives[name].preemptions += 1
                case Ended(call_id=name):
                    life = self.lives[name]
                    assert set() == life.live
                    assert (life.service_ms, life.wait_ms) == (report.service_ms, report.wait_ms)
                    assert (life.preemptions, life.output_tokens) == (report.preemptions, report.output_tokens)
                    assert life.starts == (life.service_ms > 0) or life.starts == 1
                    self.reported.append(name)

    def check_order(self, put_decodes_first: Callable[[], None]) -> None:
        """Check the running requests' order within a policy step, when there is room for the better ones."""
        ranks = [self.scheduler._calls.rank_of(request) for request in self.scheduler.running]
        assert sorted(ranks) == ranks
        before = list(self.scheduler.running)
        put_decodes_first()
        decodes_first = sorted(before, key=lambda request: request in self.scheduler._inflight_prefills)
        assert self.scheduler.running in (before, decodes_first)
        self.seen["policy steps"] += 1

    def check_nothing_is_left(self) -> None:
        """Check that the scheduler holds nothing of calls that ended."""
        scheduler = self.scheduler
        calls, order, pool = scheduler._calls, scheduler._order, scheduler.kv_cache_manager.block_pool
        assert ({}, {}, [], set()) == (calls._of_call, calls._of_request, calls._left, set(calls._skipped))
        assert ({}, set(), []) == (order._stands_at, order._tail, order._moved)
        assert ({}, [], []) == (scheduler.requests, scheduler.running, list(scheduler.waiting))
        assert (deque(), set(), 0) == (scheduler._steps, scheduler._recomputing, len(scheduler._queues))
        assert BLOCKS - 1 == pool.get_num_free_blocks()  # one is vLLM's own


MakeWorld = Callable[..., World]


@pytest.fixture(scope="module")
def config() -> Iterator[VllmConfig]:
    """Return the configuration of the tiny model: four slots, 1,024 tokens of KV cache and 128 tokens a step."""
    shape = {"max_num_seqs": SLOTS, "max_num_batched_tokens": BUDGET, "max_model_len": 512, "block_size": BLOCK}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        known = EngineArgs(models.resolve("tiny"), dtype="float32", enforce_eager=True, scheduler_cls=SCHEDULER, **shape)
        config = known.create_engine_config()
        config.cache_config.num_gpu_blocks = BLOCKS
        init_none_hash(get_hash_fn_by_name("sha256"))
        yield config


@pytest.fixture
def make_world(config: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    """Return what makes a world, given its seed and the scheduler's options."""
    with tempfile.TemporaryDirectory() as folder:
        receiver = ReportReceiver(Path(folder) / "reports")  # a short path, as Unix sockets need

        def make(seed: int, **options: Any) -> World:
            settings = SchedulerOptions(report_socket=str(receiver.path), **options)
            config.additional_config = to_config(settings)
            world = World(build(config), receiver, random.Random(seed))
            monkeypatch.setattr(adapter, "now_ms", lambda: world.now_ms)
            put = world.scheduler._put_decodes_first
            monkeypatch.setattr(world.scheduler, "_put_decodes_first", lambda: world.check_order(put))
            made.append(world)
            return world

        made: list[World] = []
        yield make
        for world in made:
            world.scheduler.shutdown()
        receiver.close()


def build(config: VllmConfig) -> Any:
    """Return a scheduler as vLLM's engine core builds it, for a model of one layer."""
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=config.model_config.dtype)
    return config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["one"], spec)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        log_stats=True,
    )


def some_call(world: World) -> None:
    """Let a call of any kind arrive: short, or of several steps' prompt; known to the prefix cache, or not."""
    chance = world.chance
    shared = chance.choice([[], [1] * 100, [2] * 250])
    prompts = [shared + chance.choices(range(10, 99), k=chance.choice([1, 20, 60, 200])) for _ in range(2)]
    world.add(
        prompts[: chance.choice([1, 1, 2])],
        n=chance.choice([1, 1, 2]),
        priority=chance.choice([0] * 8 + [-1, 5]),
        max_tokens=chance.choice([1, 2, 10, 40]),
        service_ms=chance.choice([0.0, 3.0, 40.0, 1000.0]),
        critical_path_ms=chance.choice([0.0, 3.0, 40.0]),
        waiting_ms=chance.choice([0.0, 0.0, 1e5]),
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_any_mix_of_calls(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, policy: str, interval: int, seed: int
) -> None:
    """After every event the scheduler agrees with the account; all calls are reported once, and nothing is left."""
    monkeypatch.setattr(fitting, "KNOWN_MIN", 3)
    monkeypatch.setattr(fitting, "FIT_EVERY", 4)
    world = make_world(seed, policy=policy, policy_interval_steps=interval, first_quantum_ms=5.0, beta=0.5)
    for _ in range(150):
        happens = world.chance.random()
        if happens < 0.4 and len(world.scheduler.requests) < 4 * SLOTS:
            some_call(world)
        elif happens < 0.4 + ABORTS:
            world.abort_some()
        elif happens > 0.98:
            world.scheduler.reset_prefix_cache(reset_running_requests=True)
            world.check()
        for _ in range(world.chance.choice([0, 1, 2, 4])):
            world.pass_time(world.chance.choice([0.0, 0.0, 0.25, 8.0]))
            world.turn()
    world.finish()

    assert sorted(world.lives) == sorted(world.reported)
    world.check_nothing_is_left()
    print(policy, interval, seed, world.seen, sum(x.preemptions for x in world.lives.values()), len(world.lives), world.scheduler.current_step)


def test_nobody_is_put_out_while_new_calls_are_kept_waiting(make_world: MakeWorld) -> None:
    """Better calls take no slot of a paused engine, which would leave it empty; unpaused, they take them at once."""
    world = make_world(0, policy="plas")
    old = [world.add([[number]], service_ms=1e6) for number in range(SLOTS)]
    for _ in range(4):
        world.turn()
    world.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    new = [world.add([[number]]) for number in range(2)]
