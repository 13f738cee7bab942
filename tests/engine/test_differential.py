"""The simulated engine and real vLLM, given the same arrivals, hold, let in, put out and end the same calls, at once.

Both run the same policy core; what is compared is everything else: budget, chunks, blocks, prefix cache, slots. vLLM
computes every token of the tiny model; only its clock is the simulation's, since a step takes what it takes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from autellix.engine.executor import Held, ProgramOver, Turn
from autellix.engine.policy import POLICIES, call_queues, policy_named
from autellix.engine.simulation.calls import Ended, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.timing import EngineLimits, EngineOptions, StepTiming, grid_after
from autellix.engine.vllm_adapter import scheduler as adapter
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts
from tests.engine.conftest import BLOCK, BLOCKS, BUDGET, SLOTS, Bench

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

STEP = StepTiming(fixed_ms=4.0, prefill_token_ms=0.0625, decoding_call_ms=0.5, context_token_ms=0.0078125)
"""Powers of two: sums of them are exact, in whatever order they are added."""
LADDER: dict[str, Any] = {"first_quantum_ms": 32.0, "queues": 5, "beta": 2.0, "fit_ladder": True}


class Arrival(NamedTuple):
    """One call of the trace."""

    name: str
    at_ms: float
    service_ms: float
    prompt: str
    output_tokens: int
    program: str


class Over(NamedTuple):
    """The end of a program."""

    program: str
    at_ms: float


Trace = list[Arrival | Over]


class Seen(NamedTuple):
    """Something that happened to a call, and when; its account, if it ended."""

    at_ms: float
    what: str
    call_id: str
    account: tuple[Any, ...] = ()


def trace(seed: int, calls: int) -> Trace:
    """Return calls with shared and with own prefixes, in bursts, enough of them to fill slots and blocks."""
    chance = random.Random(seed)
    systems = ["".join(chance.choices("abcdefgh", k=chance.choice([60, 200, 400]))) for _ in range(3)]
    arrivals: Trace = []
    at_ms = 0.0
    for number in range(calls):
        at_ms += chance.choice([0.0, 1.0, 20.0, 150.0]) + 1 / 256
        own = "".join(chance.choices("ijklmnop", k=chance.choice([10, 100, 350])))
        service_ms = chance.choice([0.0, 30.0, 100.0, 500.0])
        prompt, tokens = chance.choice(systems) + own, chance.choice([3, 20, 70])
        arrivals.append(Arrival(f"c{number}", at_ms, service_ms, prompt, tokens, program=f"c{number}"))
    return arrivals


def conversations(seed: int, programs: int) -> Trace:
    """Return programs whose calls begin with what the one before began with, some pausing for long, then over."""
    chance = random.Random(seed)
    system = "".join(chance.choices("abcdefgh", k=100))
    arrivals: Trace = []
    for number in range(programs):
        at_ms, service_ms, prompt = 100.0 * number + 1 / 256, 0.0, system
        for call in range(chance.choice([1, 3, 5])):
            prompt += "".join(chance.choices("ijklmnop", k=chance.choice([30, 100, 160])))
            name, tokens = f"p{number}-{call}", chance.choice([3, 20, 50])
            arrivals.append(Arrival(name, at_ms, service_ms, prompt, tokens, program=f"p{number}"))
            at_ms += chance.choice([200.0, 400.0, 1000.0]) + 1 / 512
            service_ms += 8.0 * tokens
        arrivals.append(Over(f"p{number}", at_ms))
    return sorted(arrivals, key=lambda each: each.at_ms)


class VirtualClock:
    """Stands in for the scheduler's clock: a step of vLLM takes what the formula says, and calls arrive meanwhile."""

    def __init__(self, bench: Bench, patch: pytest.MonkeyPatch, arrivals: Trace) -> None:
        self.now_ms = 0.0
        self.due = list(arrivals)
        self.held: list[Seen] = []
        self._bench = bench
        self._scheduler = bench.scheduler
        self._decoding: set[str] = set()
        take_in = bench.scheduler.update_from_output

        def update_from_output(output: SchedulerOutput, *rest: Any) -> Any:
            self.pass_time(self.now_ms + self._step_ms(output) if output.num_scheduled_tokens else self._next_ms())
            return take_in(output, *rest)

        patch.setattr(adapter, "now_ms", lambda: self.now_ms)
        patch.setattr(bench.scheduler, "update_from_output", update_from_output)

    def pass_time(self, until_ms: float) -> None:
        """Let time pass, and all happen that is due."""
        while self.due and self.due[0].at_ms <= until_ms:
            each = self.due.pop(0)
            self.now_ms = each.at_ms
            if isinstance(each, Arrival):
                self._arrive(each)
            elif self._scheduler._gate:
                self._scheduler._gate.over(each.program, self.now_ms)
        self.now_ms = until_ms

    def _arrive(self, call: Arrival) -> None:
        facts: dict[str, Any] = {"program": call.program, "service_ms": call.service_ms}
        self._bench.add(call.name, call.prompt, **facts, max_tokens=call.output_tokens)
        if self._scheduler._gate and self._scheduler._gate._gate.is_held(call.name):
            self.held.append(Seen(self.now_ms, "Held", call.name))

    def _next_ms(self) -> float:
        """Return when something happens though nobody runs."""
        look_at_ms = grid_after(self._scheduler._gate._gate.look_at_ms) if self._scheduler._gate else inf
        return min(look_at_ms, self.due[0].at_ms if self.due else inf)

    def _step_ms(self, output: SchedulerOutput) -> float:
        """Return how long a step takes; its tokens are counted as computed already."""
        prefill = decodes = context = 0
        entered = {new.req_id for new in output.scheduled_new_reqs} | output.scheduled_cached_reqs.resumed_req_ids
        self._decoding -= entered
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = self._scheduler.requests[request_id]
            context += request.num_computed_tokens - tokens
            if request_id in self._decoding:
                decodes += 1
            else:
                prefill += tokens
            if request.num_computed_tokens == request.num_tokens:  # its next token is sampled with this step
                self._decoding.add(request_id)
        return STEP.step_ms(prefill_tokens=prefill, decoding_calls=decodes, context_tokens=context)


def on_vllm(bench: Bench, clock: VirtualClock) -> Iterator[Seen]:
    """Serve the trace with vLLM."""
    while clock.due or bench.engine.has_unfinished_requests():
        if not bench.engine.has_unfinished_requests():
            clock.pass_time(max(clock.now_ms, clock.due[0].at_ms))
            continue
        began_ms, turns, ended = clock.now_ms, len(bench.turns), set(bench.ended)
        bench.step()
        started = (turn for turn in bench.turns[turns:] if not isinstance(turn, Held))
        yield from (Seen(began_ms, type(turn).__name__, turn.call_id) for turn in started)
        for name in bench.ended.keys() - ended:
            report = bench.ended[name]
            yield Seen(clock.now_ms, "Ended", name, account(report))
    yield from clock.held


def simulated(arrivals: Trace, policy: str, gate: str) -> Iterator[Seen]:
    """Serve the trace with the simulated engine."""
    limits = EngineLimits(slots=SLOTS, kv_tokens=(BLOCKS - 1) * BLOCK, block_size=BLOCK, max_num_batched_tokens=BUDGET,
                          max_model_len=1024)  # fmt: skip
    options = EngineOptions(limits=limits, preemptions_per_step_max=2, gate=gate)
    engine = SimulatedEngine(call_queues(policy_named(policy), **LADDER), STEP, options)
    names: dict[tuple[str, int], int] = {}
    for each in arrivals:
        while engine.next_ms < each.at_ms:
            yield from seen(engine, engine.next_ms)
        if isinstance(each, Over):
            engine.tell(ProgramOver(program_id=ProgramId(each.program)), each.at_ms)
            continue
        engine.add(simulated_call(each, names), each.at_ms)
    while engine.next_ms < 1e12:
        yield from seen(engine, engine.next_ms)


def simulated_call(call: Arrival, names: dict[tuple[str, int], int]) -> SimulatedCall:
    """Return a call as the simulated engine gets it, its blocks named by what is in them."""
    blocks = (len(call.prompt) + call.output_tokens) // BLOCK
    texts = [call.prompt[: end * BLOCK] if end * BLOCK <= len(call.prompt) else call.name + str(end)
             for end in range(1, blocks + 1)]  # fmt: skip
    keys = [names.setdefault((text, end), len(names)) for end, text in enumerate(texts)]
    facts = ProgramFacts(service_ms=call.service_ms, critical_path_ms=call.service_ms)
    call_id, program_id = CallId(call.name), ProgramId(call.program)
    return SimulatedCall(call_id, program_id, facts, len(call.prompt), call.output_tokens, keys)


def seen(engine: SimulatedEngine, now_ms: float) -> Iterator[Seen]:
    """Let the simulated engine go on and yield what happened."""
    for at_ms, what in engine.advance(now_ms):
        if isinstance(what, Ended):
            yield Seen(at_ms, "Ended", what.call_id, account(what.account))
        else:
            assert isinstance(what, Turn)
            yield Seen(at_ms, type(what).__name__, what.call_id)


def account(report: Any) -> tuple[Any, ...]:
    """Return what a call was charged and how it went."""
    times = (round(report.service_ms, 3), round(report.wait_ms, 3), round(report.held_ms, 3))
    return (*times, report.preemptions, tuple(report.queues), report.cached_tokens, report.output_tokens)


def ordered(happenings: Iterator[Seen]) -> list[Seen]:
    """Return what happened; calls that end with one step are told in no order."""

    def order(each: Seen) -> tuple[float, bool, str]:
        return each.at_ms, each.what != "Ended", each.call_id if each.what == "Ended" else ""

    return sorted((each._replace(at_ms=round(each.at_ms, 3)) for each in happenings), key=order)


def compare(bench: Bench, patch: pytest.MonkeyPatch, arrivals: Trace, policy: str, gate: str) -> list[Seen]:
    """Check that both engines do the same, and return it."""
    bench.use(policy, gate=gate, **LADDER)
    real = ordered(on_vllm(bench, VirtualClock(bench, patch, arrivals)))
    model = ordered(simulated(arrivals, policy, gate))

    assert real == model
    calls = sorted(each.name for each in arrivals if isinstance(each, Arrival))
    assert calls == sorted(each.call_id for each in real if each.what == "Ended")
    return real


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_same_decisions(bench: Bench, monkeypatch: pytest.MonkeyPatch, policy: str, seed: int) -> None:
    """Every start, preemption, resumption and end comes in the same order, at the same time, at the same price."""
    happened = compare(bench, monkeypatch, trace(seed, calls=40), policy, "off")

    assert policy == "fcfs" or [each for each in happened if each.what == "Preempted"] != []


@pytest.mark.parametrize(("policy", "gate", "seed"), [("auto", "fair", 1), ("fcfs", "fair", 2), ("plas", "plain", 3)])
def test_same_holds(bench: Bench, monkeypatch: pytest.MonkeyPatch, policy: str, gate: str, seed: int) -> None:
    """With programs that do not fit together the same calls are held, and pass at the same time."""
    happened = compare(bench, monkeypatch, conversations(seed, programs=12), policy, gate)

    assert len([each for each in happened if each.what == "Held"]) > 5
