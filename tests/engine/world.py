"""A real scheduler without a model: the tokens are made up, the clock is the test's, and an account is kept by hand."""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, NamedTuple

from vllm import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_block_hash, get_request_block_hasher
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from autellix.engine.executor import Preempted, Started
from autellix.engine.vllm_adapter.reports import Busy, Ended, ReportReceiver
from tests.unit.kv_manager import check_blocks

BLOCK, BLOCKS, BUDGET, SLOTS, IN_FLIGHT = 16, 36, 128, 4, 2
PROGRAMS = 6
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
    held: int = 0
    """How often a request was seen to be held."""
    charged_waiting: int = 0
    """How often a call was charged a step that was in flight when it was put out."""

    def add(self, *prompts: list[int], n: int = 1, priority: int = 0, max_tokens: int = 100, **facts: Any) -> str:
        """Let a call of a program of its own arrive, its requests named as vLLM does, and return its name."""
        name = f"c{len(self.lives)}"
        life = self.lives[name] = Life()
        about = {f"autellix_{fact}": value for fact, value in {"program_id": name, **facts, "call_id": name}.items()}
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
        offered = list(scheduler._program_waiting.best_first())
        ranks = [calls.rank_of(request) for request in offered]
        assert sorted(each for life in lives.values() for each in life.live) == sorted([*running, *waiting])
        assert sorted(running) == sorted(request.request_id for request in scheduler.running)
        assert waiting[: len(offered)] == [request.request_id for request in offered]
        assert ranks == sorted(ranks)
        self._check_gate(set(waiting[len(offered) :]))
        assert lives.keys() == calls._of_call.keys()
        for name, life in lives.items():
            call, clock_ms = scheduler._queues[name], scheduler._queues._clock_ms  # service is added up when needed
            charged_ms = 0.0 if call.in_batch_since_ms is None else clock_ms - call.in_batch_since_ms
            assert life.live & running == calls._of_call[name].running
            assert self.runs(life) == (call.waiting_since_ms is None)
            assert life.service_ms == call.service_ms + charged_ms

    def _check_gate(self, held: set[str]) -> None:
        """Check that those requests are held whose calls have not passed, and that vLLM's rules for blocks hold."""
        scheduler = self.scheduler
        check_blocks(scheduler.kv_cache_manager.block_pool)
        self.held += len(held)
        if not scheduler._gate:
            assert held == set()
            return
        gate = scheduler._gate._gate
        assert held == {
            each for name, life in self.lives.items() if life.live and gate.is_held(name) for each in life.live
        }
        for name, life in self.lives.items():
            assert not (life.live and self.runs(life) and gate.is_held(name))

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
        pool = scheduler.kv_cache_manager.block_pool
        assert pool.get_num_free_blocks() == BLOCKS - 1  # one is vLLM's own
        if scheduler._gate:
            programs = scheduler._gate._gate._programs.values()
            kept = [islice(each.had, each.first_blocks if each.calls_ended > 1 else None) for each in programs]
            first = set().union(*kept)
            for number in range(PROGRAMS):
                scheduler._gate.over(f"p{number}", self.now_ms)
            gate = scheduler._gate._gate
            assert ({}, {}, [], {}) == (scheduler._gate._computed, gate._of_call, [*gate._held], gate._programs)
            assert (0, 0) == (gate._room.used, len(gate._room._had))
            assert {get_block_hash(name) for name in pool.cached_block_hash_to_block._cache} <= first
