"""The simulated engine and real vLLM, given the same arrivals, let in, put out and end the same calls at equal times.

Both run the same policy core; what is compared is everything else: budget, chunks, blocks, prefix cache, slots. vLLM
computes every token of the tiny model; only its clock is the simulation's, since a step takes what it takes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from autellix.engine.executor import Turn
from autellix.engine.policy import POLICIES, call_queues, policy_named
from autellix.engine.simulation.calls import Ended, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.timing import EngineLimits, EngineOptions, StepTiming
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


class Seen(NamedTuple):
    """Something that happened to a call, and when; its account, if it ended."""

    at_ms: float
    what: str
    call_id: str
    account: tuple[Any, ...] = ()


def trace(seed: int, calls: int) -> list[Arrival]:
    """Return calls with shared and with own prefixes, in bursts, enough of them to fill slots and blocks."""
    chance = random.Random(seed)
    systems = ["".join(chance.choices("abcdefgh", k=chance.choice([60, 200, 400]))) for _ in range(3)]
    arrivals, at_ms = [], 0.0
    for number in range(calls):
        at_ms += chance.choice([0.0, 1.0, 20.0, 150.0]) + 1 / 256
        own = "".join(chance.choices("ijklmnop", k=chance.choice([10, 100, 350])))
        service_ms = chance.choice([0.0, 30.0, 100.0, 500.0])
        arrivals.append(
            Arrival(f"c{number}", at_ms, service_ms, chance.choice(systems) + own, chance.choice([3, 20, 70]))
        )
    return arrivals


class VirtualClock:
    """Stands in for the scheduler's clock: a step of vLLM takes what the formula says."""

    def __init__(self, bench: Bench, patch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0.0
        self._scheduler = bench.scheduler
        self._decoding: set[str] = set()
        take_in = bench.scheduler.update_from_output

        def update_from_output(output: SchedulerOutput, *rest: Any) -> Any:
            self.now_ms += self._step_ms(output)
            return take_in(output, *rest)

        patch.setattr(adapter, "now_ms", lambda: self.now_ms)
        patch.setattr(bench.scheduler, "update_from_output", update_from_output)

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


def on_vllm(bench: Bench, arrivals: list[Arrival], clock: VirtualClock) -> Iterator[Seen]:
    """Serve the trace with vLLM."""
    due = list(arrivals)
    while due or bench.engine.has_unfinished_requests():
        if not bench.engine.has_unfinished_requests():
            clock.now_ms = max(clock.now_ms, due[0].at_ms)
        while due and due[0].at_ms <= clock.now_ms:
            call = due.pop(0)
            at_ms, clock.now_ms = clock.now_ms, call.at_ms  # it waits from its arrival on, not from the step's end
            bench.add(call.name, call.prompt, service_ms=call.service_ms, max_tokens=call.output_tokens)
            clock.now_ms = at_ms
        began_ms, turns, ended = clock.now_ms, len(bench.turns), set(bench.ended)
        bench.step()
        yield from (Seen(began_ms, type(turn).__name__, turn.call_id) for turn in bench.turns[turns:])
        for name in bench.ended.keys() - ended:
            report = bench.ended[name]
            yield Seen(clock.now_ms, "Ended", name, account(report))


def simulated(arrivals: list[Arrival], policy: str) -> Iterator[Seen]:
    """Serve the trace with the simulated engine."""
    limits = EngineLimits(slots=SLOTS, kv_tokens=(BLOCKS - 1) * BLOCK, block_size=BLOCK, max_num_batched_tokens=BUDGET,
                          max_model_len=1024)  # fmt: skip
    engine = SimulatedEngine(
        call_queues(policy_named(policy), **LADDER), STEP, EngineOptions(limits=limits, preemptions_per_step_max=2)
    )
    names: dict[tuple[str, int], int] = {}
    for call in arrivals:
        while engine.next_ms < call.at_ms:
            yield from seen(engine, engine.next_ms)
        blocks = (len(call.prompt) + call.output_tokens) // BLOCK
        texts = [call.prompt[: end * BLOCK] if end * BLOCK <= len(call.prompt) else call.name + str(end)
                 for end in range(1, blocks + 1)]  # fmt: skip
        keys = [names.setdefault((text, end), len(names)) for end, text in enumerate(texts)]
        facts = ProgramFacts(service_ms=call.service_ms, critical_path_ms=call.service_ms)
        call_id, program_id = CallId(call.name), ProgramId(call.name)
        engine.add(SimulatedCall(call_id, program_id, facts, len(call.prompt), call.output_tokens, keys), call.at_ms)
    while engine.next_ms < 1e12:
        yield from seen(engine, engine.next_ms)


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
    times = (round(report.service_ms, 3), round(report.wait_ms, 3))
    return (*times, report.preemptions, tuple(report.queues), report.cached_tokens, report.output_tokens)


def ordered(happenings: Iterator[Seen]) -> list[Seen]:
    """Return what happened; calls that end with one step are told in no order."""

    def order(each: Seen) -> tuple[float, bool, str]:
        return each.at_ms, each.what != "Ended", each.call_id if each.what == "Ended" else ""

    return sorted((each._replace(at_ms=round(each.at_ms, 3)) for each in happenings), key=order)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_same_decisions(bench: Bench, monkeypatch: pytest.MonkeyPatch, policy: str, seed: int) -> None:
    """Every start, preemption, resumption and end comes in the same order, at the same time, at the same price."""
    arrivals = trace(seed, calls=40)
    bench.use(policy, **LADDER)
    real = ordered(on_vllm(bench, arrivals, VirtualClock(bench, monkeypatch)))
    model = ordered(simulated(arrivals, policy))

    assert real == model
    assert len({each.call_id for each in real if each.what == "Ended"}) == len(arrivals)
    assert policy == "fcfs" or [each for each in real if each.what == "Preempted"] != []
