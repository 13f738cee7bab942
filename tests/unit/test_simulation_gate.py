"""A simulated engine with a gate: programs that come back again and again, and do not fit all at once."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest

from autellix.engine.executor import Held, ProgramOver, Started
from autellix.engine.policy import call_queues, policy_named
from autellix.engine.policy.gittins import rank_table
from autellix.engine.simulation.calls import Ended, Happening, SimulatedCall
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
        self.first_prompts: dict[ProgramId, set[int]] = {}
        self._answered: dict[ProgramId, list[Thread]] = {}
        """By program, the thread of each call that has an answer."""
        for number in range(self._chance.randint(4, 10)):
            program, at_ms = ProgramId(f"p{number}"), self._chance.random() * 500
            self._live[program], self._service_ms[program] = self._chance.randint(1, 3), 0.0
            for thread in range(self._live[program]):
                calls = self._chance.randint(1, 5)
                chance = random.Random(f"{seed} {number} {thread}")
                self._at(at_ms, Thread(program, ThreadId(f"t{thread}"), chance, calls, list(range(15)), 60))

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Let all of them come and be over; `look` is called after whatever happens."""
        if self._chance.random() < 0.3:
            self.engine.tell(FALLS, 0.0)
        while self._todo or self.engine.next_ms < inf:
            at_ms = self._todo[0][0] if self._todo else inf
            if self.engine.next_ms <= at_ms:
                self._take(self.engine.advance(self.engine.next_ms))
            else:
                self._take(self.engine.advance(at_ms))
                self._do(heapq.heappop(self._todo)[2], at_ms)
            look()

    @property
    def had_by_one_call(self) -> list[list[int]]:
        """Return the blocks of those programs of which no more than one call was answered."""
        return [thread.keys for threads in self._answered.values() if len(threads) <= 1 for thread in threads]

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
                self.first_prompts.setdefault(what.program, {*call.keys[: call.prompt_tokens // BLOCK_SIZE]})
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
                self._answered.setdefault(thread.program, [])
                if what.account.output_tokens:
                    self._answered[thread.program].append(thread)
                self._ended(thread, at_ms)

    def _ended(self, thread: Thread, at_ms: float) -> None:
        if thread.calls_left and thread.tokens < 700:
            think_ms = thread.chance.choice([0.0, 50.0, 2000.0]) * thread.chance.random()
            self._at(at_ms + think_ms, thread)
            return
        self._live[thread.program] -= 1
        if not self._live[thread.program]:
            self._at(at_ms, ProgramOver(program_id=thread.program))


def scarce(seed: int, *, gate: str, jump: bool = True) -> EngineOptions:
    """Return an engine in which few of the programs fit at once, most of the time."""
    chance = random.Random(seed)
    return options(
        gate=gate,
        jump=jump,
        slots=chance.choice([1, 2, 4, 8]),
        kv_tokens=chance.choice([900, 1200, 4000]),
        max_num_batched_tokens=chance.choice([32, 256]),
    )


seeds = pytest.mark.parametrize("seed", range(12))
gates = pytest.mark.parametrize("gate", ["fair", "plain"])


@seeds
@gates
@pytest.mark.parametrize("policy", ["atlas", "auto"])
def test_a_jump_is_its_steps(policy: str, gate: str, seed: int) -> None:
    """Steps taken at once bring the same events at the same times, to the last bit, with calls held and let pass."""
    jumped = Agents(seed, policy, scarce(seed, gate=gate))
    jumped.run()
    stepped = Agents(seed, policy, scarce(seed, gate=gate, jump=False))
    stepped.run()

    assert stepped.happened == jumped.happened
    assert stepped.engine.counters == jumped.engine.counters


@seeds
@gates
def test_all_end_and_nothing_is_left(gate: str, seed: int) -> None:
    """Every call ends, once; then the gate knows no program, and only what others may begin like is cached."""
    agents = Agents(seed, "auto", scarce(seed, gate=gate))
    agents.run()
    ended = [what.call_id for _, what in agents.happened if isinstance(what, Ended)]
    behind: Any = agents.engine._batch.entrance._gate

    assert sorted(ended) == sorted(f"c{number}" for number in range(len(agents.chains)))
    assert (0, [], {}, {}) == (behind._room.used, behind.held_calls, behind._programs, behind._of_call)
    assert (0, 0) == (len(behind._residents), len(behind._room._had))
    assert 0 == agents.engine._batch.memory.usage
    beginnings = [*agents.first_prompts.values(), *agents.had_by_one_call]
    assert agents.engine._batch.memory._pool._oldest.keys() <= set().union(*beginnings)


@seeds
@gates
def test_no_block_outlives_those_before_it(gate: str, seed: int) -> None:
    """Whatever is exposed, evicted, preempted and aborted, of each content a first part is cached and nothing else."""
    agents = Agents(seed, "atlas", scarce(seed, gate=gate))
    cached = agents.engine._batch.memory._pool._oldest
    orphans: list[int] = []

    def look() -> None:
        for keys in agents.chains:
            hits = next((place for place, key in enumerate(keys) if key not in cached), len(keys))
            orphans.extend(key for key in keys[hits:] if key in cached)

    agents.run(look)

    assert [] == orphans


def test_some_are_held() -> None:
    """The programs of these tests are too many for most of the engines."""
    held = 0
    for seed in range(12):
        agents = Agents(seed, "atlas", scarce(seed, gate="fair"))
        agents.run()
        held += any(isinstance(what, Held) for _, what in agents.happened)

    assert held >= 8


@pytest.fixture
def idle() -> SimulatedEngine:
    """Return an engine of 100 blocks with a resident between two calls and a call that is held, at 200 ms.

    A step takes 10 ms and a prompt token one. A call is expected to answer 256 tokens, half of it after one of one.
    """
    queues = call_queues(policy_named("atlas"), first_quantum_ms=20, queues=6, beta=8.0, fit_ladder=False)
    timing = StepTiming(fixed_ms=10, prefill_token_ms=1, decoding_call_ms=0, context_token_ms=0)
    engine = SimulatedEngine(queues, timing, options(kv_tokens=400))
    for name, at_ms in (("a", 0.0), ("b", 200.0)):
        engine.advance(at_ms)
        keys = [ord(name) * 1000 + place for place in range(45)]
        engine.add(SimulatedCall(CallId(name), ProgramId(name), ProgramFacts(), 180, 1, keys), at_ms)
    return engine


T_POOL_MS = 400 * 190 / 180
"""From the one step that there was."""


def test_an_idle_engine_wakes_for_a_held_call(idle: SimulatedEngine) -> None:
    """It looks again when the resident has been away for T_pool, and at no time before."""
    ((_, held),) = idle.advance(200.0)
    assert Held(CallId("b"), order="atlas", programs_ahead=0, wanted_tokens=4 * 77, free_tokens=4 * 45) == held
    at_ms = idle.next_ms
    assert at_ms == pytest.approx(190 + T_POOL_MS)
    ((_, started),) = idle.advance(at_ms)
    ((_, ended),) = idle.advance(idle.next_ms)

    assert Started(CallId("b"), at_ms - 200) == started
    assert isinstance(ended, Ended)
    assert at_ms - 200 == ended.account.wait_ms == ended.account.held_ms
    assert inf == idle.next_ms


def test_a_held_call_is_aborted(idle: SimulatedEngine) -> None:
    """It ends at once in an idle engine, with what it waited and without service; nobody is looked after any more."""
    idle.advance(200.0)
    idle.abort(CallId("b"), 300.0)
    ((at_ms, ended),) = idle.advance(300.0)

    assert isinstance(ended, Ended)
    assert (300.0, 100.0, 100.0) == (at_ms, ended.account.wait_ms, ended.account.held_ms)
    assert (0.0, 0) == (ended.account.service_ms, ended.account.output_tokens)
    assert inf == idle.next_ms


def test_the_end_of_a_program_wakes_an_idle_engine(idle: SimulatedEngine) -> None:
    """Who is held takes the place of who is over."""
    idle.advance(200.0)
    idle.tell(ProgramOver(program_id=ProgramId("a")), 250.0)

    assert [(250.0, Started(CallId("b"), 50.0))] == idle.advance(250.0)
