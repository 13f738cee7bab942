"""Two steps in flight, as vLLM has them on a GPU, under any mix of calls, held against a slow, plain account.

On a CPU vLLM switches async scheduling off, so the engines of the other tests never have a step in flight. Here the
real scheduler is stepped without a model: the tokens are made up, and the clock is the test's.
"""

import random
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from vllm import EngineArgs, SamplingParams
from vllm.config import VllmConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from autellix.engine.executor import Preempted, Started
from autellix.engine.policy import POLICIES, fitting
from autellix.engine.vllm_adapter import models
from autellix.engine.vllm_adapter import scheduler as adapter
from autellix.engine.vllm_adapter.options import SchedulerOptions, to_config
from autellix.engine.vllm_adapter.reports import Busy, Ended, ReportReceiver

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

BLOCK, BLOCKS, BUDGET, SLOTS, IN_FLIGHT = 16, 36, 128, 4, 2
TOKEN, STOP = 300, 301
STEP_MS = (0.0, 0.5, 2.0, 16.0)  # their sums are exact: an account is right or wrong, never nearly right


@dataclass
class Life:
    """What the test saw of one call."""

    live: set[str] = field(default_factory=set)
    """Its requests that have not ended."""
    service_ms: float = 0.0
    wait_ms: float = 0.0
    output_tokens: int = 0
    turns: Counter[type] = field(default_factory=Counter)


class Flight(NamedTuple):
    """A step that was scheduled, and the answer that is to come."""

    scheduled_at_ms: float
    calls: list[Life]
    output: Any
    answer: ModelRunnerOutput


@dataclass
class World:
    """A scheduler without a model, its clock, and the account of its calls."""

    scheduler: Any
    receiver: ReportReceiver
    chance: random.Random
    surprises: float
    """Share of tokens that end an answer, and of steps in which somebody is aborted."""
    now_ms: float = 0.0
    last_output_ms: float = 0.0
    lives: dict[str, Life] = field(default_factory=dict)
    flights: deque[Flight] = field(default_factory=deque)
    ended: list[str] = field(default_factory=list)
    policy_steps: int = 0
    charged_waiting: int = 0
    """How often a call was charged a step that was in flight when it was put out."""

    def add(self, *prompts: list[int], n: int = 1, priority: int = 0, max_tokens: int = 100, **facts: Any) -> str:
        """Let a call of a program of its own arrive, its requests named as vLLM does, and return its name."""
        name = f"c{len(self.lives)}"
        life = self.lives[name] = Life()
        about = {f"autellix_{fact}": value for fact, value in {**facts, "call_id": name, "program_id": name}.items()}
        params = SamplingParams(max_tokens=max_tokens, stop_token_ids=[STOP], extra_args=about)
        hasher = get_request_block_hasher(BLOCK, sha256)
        for (number, prompt), index in product(enumerate(prompts), range(n)):
            each = f"{index}_{name}-{number}"
            self.scheduler.add_request(Request(each, prompt, params, None, priority=priority, block_hasher=hasher))
            life.live.add(each)
        self.check()
        return name

    def abort_some(self) -> None:
        """End a call from outside, or some of its requests."""
        if live := [life.live for life in self.lives.values() if life.live]:
            requests = self.chance.choice(live)
            gone = self.chance.sample(sorted(requests), k=self.chance.randint(1, len(requests)))
            self.scheduler.finish_requests(gone, RequestStatus.FINISHED_ABORTED)
            requests.difference_update(gone)
            self.check()

    def pass_time(self, ms: float) -> None:
        """Let time pass; a call waits while none of its requests runs."""
        self.now_ms += ms
        for life in self.lives.values():
            life.wait_ms += ms if life.live and not self.runs(life) else 0.0

    def runs(self, life: Life) -> bool:
        """Tell whether vLLM runs a request of a call."""
        return any(self.scheduler.requests[each].status == RequestStatus.RUNNING for each in life.live)

    def turn(self, count: int = 1) -> None:
        """Do what vLLM's engine core does with its queue of batches: fill it, then wait for the oldest."""
        for _ in range(count):
            if self.scheduler.has_requests():
                self.schedule()
                if len(self.flights) < IN_FLIGHT and (self.flights[-1].calls or self.scheduler.has_requests()):
                    continue
            if self.flights:
                self.update()

    def schedule(self) -> None:
        """Put one more step in flight."""
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        chunks = [self.scheduler.requests[name].is_prefill_chunk for name in names]
        tokens = [[] if chunk else [STOP if self.chance.random() < self.surprises else TOKEN] for chunk in chunks]
        answer = ModelRunnerOutput(names, {name: row for row, name in enumerate(names)}, tokens)
        calls = [life for life in self.lives.values() if not life.live.isdisjoint(names)]
        self.flights.append(Flight(self.now_ms, calls, output, answer))
        self.check()

    def update(self) -> None:
        """End the oldest step: charge it to those who were in it and are still here, then hand in its answer."""
        flight = self.flights.popleft()
        began_ms = max(flight.scheduled_at_ms, self.last_output_ms)
        self.pass_time(self.chance.choice(STEP_MS))
        self.last_output_ms = self.now_ms
        if self.chance.random() < self.surprises:  # vLLM takes aborts in between a step's output and its update
            self.abort_some()
        for life in filter(lambda life: life.live, flight.calls):
            life.service_ms += self.now_ms - began_ms
            self.charged_waiting += not self.runs(life)
        batches = self.scheduler.update_from_output(flight.output, flight.answer).values()
        for told in [told for batch in batches for told in batch.outputs]:
            life = next(life for life in flight.calls if told.request_id in life.live)
            life.output_tokens += len(told.new_token_ids)
            if told.finish_reason is not None:
                life.live.remove(told.request_id)
        self.check()

    def finish(self) -> None:
        """Take turns until nothing is left to do, and empty steps until the policy had one of them."""
        while self.scheduler.has_requests() or self.flights:
            self.turn()
        for _ in range(self.scheduler.options.policy_interval_steps):
            self.schedule()
            self.update()

    def check(self) -> None:
        """Hold what the scheduler has and what it reports against the account."""
        self._check_reports()
        scheduler, calls = self.scheduler, self.scheduler._calls
        lives = {name: life for name, life in self.lives.items() if life.live}
        running = {each for each, request in scheduler.requests.items() if request.status == RequestStatus.RUNNING}
        waiting = [request.request_id for request in scheduler.waiting]
        ranks = [calls.rank_of(request) for request in scheduler.waiting]
        assert sorted(each for life in lives.values() for each in life.live) == sorted([*running, *waiting])
        assert sorted(running) == sorted(request.request_id for request in scheduler.running)
        assert waiting == [request.request_id for request in scheduler._program_waiting.best_first()]
        assert ranks == sorted(ranks)
        assert lives.keys() == calls._of_call.keys()
        for name, life in lives.items():
            call, clock_ms = scheduler._queues[name], scheduler._queues._clock_ms  # service is added up when needed
            charged_ms = 0.0 if call.in_batch_since_ms is None else clock_ms - call.in_batch_since_ms
            assert life.live & running == calls._of_call[name].running
            assert self.runs(life) == (call.waiting_since_ms is None)
            assert life.service_ms == call.service_ms + charged_ms

    def _check_reports(self) -> None:
        for report in self.receiver.receive():
            if isinstance(report, Ended):
                life = self.lives[report.call_id]
                assert life.live == set()
                assert (life.service_ms, life.wait_ms) == (report.service_ms, report.wait_ms)
                assert (life.output_tokens, life.turns[Preempted]) == (report.output_tokens, report.preemptions)
                assert bool(life.service_ms) <= life.turns[Started] <= 1
                self.ended.append(report.call_id)
            elif not isinstance(report, Busy):
                self.lives[report.call_id].turns[type(report)] += 1

    def check_order(self, put_decodes_first: Callable[[], None]) -> None:
        """Check the order of the running requests in the middle of a policy step: that of rank, then decodes first."""
        before = list(self.scheduler.running)
        ranks = [self.scheduler._calls.rank_of(request) for request in before]
        assert ranks == sorted(ranks)
        put_decodes_first()
        decodes_first = sorted(before, key=lambda request: request in self.scheduler._inflight_prefills)
        assert self.scheduler.running in (before, decodes_first)
        self.policy_steps += 1

    def check_nothing_is_left(self) -> None:
        """Check that every call was reported once, and that the scheduler holds nothing of it."""
        scheduler, calls, order = self.scheduler, self.scheduler._calls, self.scheduler._order
        assert sorted(self.lives) == sorted(self.ended)
        assert ({}, {}, [], set()) == (calls._of_call, calls._of_request, calls._left, calls._skipped)
        assert ({}, set(), [], 0) == (order._stands_at, order._tail, order._moved, len(scheduler._queues))
        assert ({}, [], 0, 0) == (scheduler.requests, scheduler.running, len(scheduler.waiting), len(scheduler._steps))
        assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == BLOCKS - 1  # one is vLLM's own


@pytest.fixture(scope="module")
def config() -> VllmConfig:
    """Return the configuration of an engine with four slots, 576 tokens of KV cache and 128 tokens a step."""
    shape = {"max_num_seqs": SLOTS, "max_num_batched_tokens": BUDGET, "max_model_len": 512, "block_size": BLOCK}
    config = EngineArgs(models.resolve("tiny"), **shape).create_engine_config()
    config.cache_config.num_gpu_blocks = BLOCKS
    return config


@pytest.fixture
def make_world(config: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Return what makes a world, once a test, given its seed, its surprises and the scheduler's options."""
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=config.model_config.dtype)
    cache = KVCacheConfig(BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["one layer"], spec)])
    init_none_hash(sha256)
    monkeypatch.setattr(fitting, "KNOWN_MIN", 3)  # the ladder moves within a test
    monkeypatch.setattr(fitting, "FIT_EVERY", 4)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        receiver = ReportReceiver(Path(folder) / "reports")  # a short path, as Unix sockets need
        stack.callback(receiver.close)

        def make(seed: int, *, surprises: float, **options: Any) -> World:
            options |= {"report_socket": str(receiver.path), "first_quantum_ms": 5.0, "beta": 0.5}
            config.additional_config = to_config(SchedulerOptions(**options))
            scheduler = adapter.ProgramScheduler(config, cache, StructuredOutputManager(config), BLOCK)
            stack.callback(scheduler.shutdown)
            world = World(scheduler, receiver, random.Random(seed), surprises)
            put_decodes_first = scheduler._put_decodes_first
            monkeypatch.setattr(adapter, "now_ms", lambda: world.now_ms)
            monkeypatch.setattr(scheduler, "_put_decodes_first", lambda: world.check_order(put_decodes_first))
            return world

        yield make


def some_call(world: World) -> None:
    """Let a call of any kind arrive: short, or with a prompt of several steps; known to the prefix cache, or not."""
    chance = world.chance
    shared = chance.choice([[], [1] * 100, [2] * 250])
    prompts = [shared + chance.choices(range(10, 99), k=chance.choice([1, 20, 60, 200])) for _ in range(2)]
    facts = {"service_ms": chance.choice([0.0, 3.0, 40.0, 1000.0]), "waiting_ms": chance.choice([0.0, 0.0, 1e5])}
    facts["critical_path_ms"] = facts["service_ms"] / chance.choice([1, 5])
    several, n, priority = chance.choice([1, 1, 2]), chance.choice([1, 1, 2]), chance.choice([0] * 8 + [-1, 5])
    world.add(*prompts[:several], n=n, priority=priority, max_tokens=chance.choice([1, 2, 10, 50]), **facts)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_any_mix_of_calls(make_world: Callable[..., World], policy: str, interval: int, seed: int) -> None:
    """After every event the scheduler agrees with the account; each call is reported once, and nothing is left."""
    world = make_world(seed, surprises=0.03, policy=policy, policy_interval_steps=interval)
    for _ in range(150):
        happens = world.chance.random()
        if happens < 0.4 and len(world.scheduler.requests) < 4 * SLOTS:
            some_call(world)
        elif 0.4 < happens < 0.45:
            world.abort_some()
        elif happens > 0.98:
            world.scheduler.reset_prefix_cache(reset_running_requests=True)
        for _ in range(world.chance.choice([0, 1, 2, 4])):
            world.pass_time(world.chance.choice([0.0, 0.0, 0.25, 8.0]))
            world.turn()
    world.finish()

    world.check_nothing_is_left()
    assert world.policy_steps == -(-world.scheduler.current_step // interval)
    assert world.charged_waiting > 0


def test_a_paused_engine_puts_nobody_out(make_world: Callable[..., World]) -> None:
    """While new calls are not let in, better ones displace nobody, for the slots would stay empty; later they do."""
    world = make_world(0, surprises=0.0, policy="plas")
    old = {world.add([number], service_ms=1e6) for number in range(SLOTS)}
    world.turn(5)
    world.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    new = {world.add([number]) for number in range(2)}
    world.turn(5)
    paused = {name for name, life in world.lives.items() if world.runs(life)}
    world.scheduler.set_pause_state(PauseState.UNPAUSED)
    world.turn()
    unpaused = {name for name, life in world.lives.items() if world.runs(life)}
    world.finish()

    assert old == paused
    assert (new, SLOTS) == (unpaused - old, len(unpaused))
    world.check_nothing_is_left()
