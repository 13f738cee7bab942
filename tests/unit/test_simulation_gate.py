"""A simulated engine with a gate: programs that come back again and again, and do not fit all at once."""

import heapq
import random
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest

from autellix.engine.executor import Held, ProgramOver
from autellix.engine.policy import call_queues, policy_named
from autellix.engine.policy.gittins import rank_table
from autellix.engine.simulation.calls import Counters, Ended, Happening, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.timing import EngineLimits, EngineOptions, StepTiming
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import Priorities, ProgramFacts

BLOCK_SIZE = 4
TIMING = StepTiming(fixed_ms=9.4, prefill_token_ms=0.106, decoding_call_ms=0.05, context_token_ms=0.0087)
FALLS = Priorities(pooled=rank_table([900.0, 1000.0, 1100.0] * 10))


def options(*, gate: str = "fair", jump: bool = True, **limits: Any) -> EngineOptions:
    """Return an engine of 300 blocks of four tokens, unless something else is said."""
    known = {"slots": 8, "kv_tokens": 1200, "block_size": BLOCK_SIZE, "max_num_batched_tokens": 256}
    return EngineOptions(limits=EngineLimits(**{**known, "max_model_len": 1200, **limits}), gate=gate, jump=jump)


@dataclass
class Thread:
    """One thread of a program: its calls, each of which begins with all that the one before it left."""

    program: ProgramId
    name: ThreadId
    chance: random.Random
    calls_left: int
    keys: list[int] = field(default_factory=list)
    tokens: int = 0

    def next_call(self, number: int, facts: ProgramFacts) -> SimulatedCall:
        """Return its next call; its blocks are new, after those that it has."""
        prompt = self.tokens + self.chance.randint(1, 150)
        output = self.chance.randint(1, 40)
        self.tokens = prompt + output
        new = range(len(self.keys), self.tokens // BLOCK_SIZE)
        self.keys = [*self.keys, *((number + 1) * 10_000 + place for place in new)]
        self.calls_left -= 1
        return SimulatedCall(CallId(f"c{number}"), self.program, facts, prompt, output, self.keys, self.name)


class Agents:
    """Programs with a system prompt in common, that call, think, and are over; some of their calls are aborted."""

    def __init__(self, seed: int, policy: str, options: EngineOptions) -> None:
        queues = call_queues(policy_named(policy), first_quantum_ms=20, queues=6, beta=2.0, fit_ladder=True)
        self.engine = SimulatedEngine(queues, TIMING, options)
        self.happened: list[Happening] = []
        self.chains: list[list[int]] = []
        self._chance = random.Random(seed)
        self._numbers = 0
        self._todo: list[tuple[float, int, Any]] = []
        self._threads: dict[CallId, Thread] = {}
        self._service_ms: dict[ProgramId, float] = {}
        self._live: dict[ProgramId, int] = {}
        for number in range(self._chance.randint(4, 10)):
            program, at_ms = ProgramId(f"p{number}"), self._chance.random() * 500
            self._live[program], self._service_ms[program] = self._chance.randint(1, 3), 0.0
            for thread in range(self._live[program]):
                calls = self._chance.randint(1, 5)
                chance = random.Random(f"{seed} {number} {thread}")
                self._at(at_ms, Thread(program, ThreadId(f"t{thread}"), chance, calls, list(range(15)), 60))

    def run(self) -> None:
        """Let all of them come and be over."""
        if self._chance.random() < 0.3:
            self.engine.tell(FALLS, 0.0)
        while self._todo or self.engine.next_ms < inf:
            at_ms = self._todo[0][0] if self._todo else inf
            if self.engine.next_ms <= at_ms:
                self._take(self.engine.advance(self.engine.next_ms))
            else:
                self._take(self.engine.advance(at_ms))
                self._do(heapq.heappop(self._todo)[2], at_ms)

    def _at(self, at_ms: float, what: Any) -> None:
        self._numbers += 1
        heapq.heappush(self._todo, (at_ms, self._numbers, what))

    def _do(self, what: Any, now_ms: float) -> None:
        match what:
            case Thread():
                service_ms = self._service_ms[what.program]
                facts = ProgramFacts(service_ms=service_ms, critical_path_ms=service_ms)
                call = what.next_call(len(self.chains), facts)
                self._threads[call.call_id] = what
                self.chains.append(what.keys)
                self.engine.add(call, now_ms)
                if what.chance.random() < 0.15:
                    self._at(now_ms + what.chance.random() * 1500, call.call_id)
            case ProgramOver():
                self.engine.tell(what, now_ms)
            case call_id:
                self.engine.abort(call_id, now_ms)

    def _take(self, happened: list[Happening]) -> None:
        self.happened += happened
        for at_ms, what in happened:
            if isinstance(what, Ended):
                thread = self._threads.pop(what.call_id)
                self._service_ms[thread.program] += what.account.service_ms
                self._ended(thread, at_ms)

    def _ended(self, thread: Thread, at_ms: float) -> None:
        if thread.calls_left and thread.tokens < 700:
            think_ms = thread.chance.choice([0.0, 50.0, 2000.0]) * thread.chance.random()
            self._at(at_ms + think_ms, thread)
            return
        self._live[thread.program] -= 1
        if not self._live[thread.program]:
            self._at(at_ms, ProgramOver(program_id=thread.program))
