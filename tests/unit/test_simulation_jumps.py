"""Steps taken in one stretch bring what the same steps bring one by one; and whatever happens, the books add up."""

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix.engine.executor import Preempted, Resumed, Started
from autellix.engine.policy import Policy, call_queues, policy_named
from autellix.engine.policy.round_robin import RoundRobin
from autellix.engine.policy.srpt import Srpt
from autellix.engine.simulation.calls import Counters, Ended, Happening, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.timing import EngineLimits, EngineOptions, StepTiming, SwapTiming
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts

TIMING = StepTiming(fixed_ms=9.4, prefill_token_ms=0.106, decoding_call_ms=0.05, context_token_ms=0.0087)
UNTIL_MS = 10_000_000.0
"""Everything drawn here has ended long before; calls that displaced each other for ever would not."""
BLOCK_SIZE = 4

POLICIES: dict[str, Callable[[], Policy]] = {
    **{name: lambda name=name: policy_named(name) for name in ("fcfs", "mlfq", "plas", "atlas")},  # type: ignore[misc]
    "round robin": lambda: RoundRobin(35.0),
    "srpt": lambda: Srpt(lambda program_id: float(len(program_id))),
}


class Arrival(NamedTuple):
    """A call, and when it comes and is aborted."""

    at_ms: float
    call: SimulatedCall
    aborted_at_ms: float = inf


class Run(NamedTuple):
    """What came of a workload."""

    happened: list[Happening]
    counters: Counters
    engine: SimulatedEngine


def run(
    arrivals: list[Arrival], policy: Policy, options: EngineOptions, *, beta: float = 8.0, fit_ladder: bool = False
) -> Run:
    """Let an engine live through a workload."""
    queues = call_queues(policy, first_quantum_ms=20, queues=6, beta=beta, fit_ladder=fit_ladder)
    engine = SimulatedEngine(queues, TIMING, options)
    todo: list[tuple[float, int, Any]] = []
    for number, arrival in enumerate(arrivals):
        todo.append((arrival.at_ms, number, arrival.call))
        todo.append((arrival.aborted_at_ms, number, arrival.call.call_id))
    happened: list[Happening] = []
    for at_ms, _, what in sorted(todo, key=lambda entry: entry[:2]):
        while engine.next_ms < min(at_ms, UNTIL_MS):
            happened += engine.advance(engine.next_ms)
        if at_ms < UNTIL_MS:
            happened += engine.advance(at_ms)
            engine.add(what, at_ms) if isinstance(what, SimulatedCall) else engine.abort(what, at_ms)
    while engine.next_ms < UNTIL_MS:
        happened += engine.advance(engine.next_ms)
    return Run(happened, engine.counters, engine)


@st.composite
def workloads(draw: st.DrawFn) -> list[Arrival]:
    """Draw calls that share prefixes, some of which are aborted."""
    arrivals, at_ms = [], 0.0
    gap_ms = draw(st.sampled_from([1, 30, 1000]))
    for number in range(draw(st.integers(1, 25))):
        at_ms += draw(st.floats(0, gap_ms))
        prompt, output = draw(st.integers(1, 400)), draw(st.integers(1, 120))
        stem, shared = draw(st.integers(0, 3)), draw(st.integers(0, 100))
        blocks = range((prompt + output) // BLOCK_SIZE)
        keys = [stem * 1000 + place if place < shared else (number + 1) * 10_000 + place for place in blocks]
        facts = ProgramFacts(
            service_ms=draw(st.sampled_from([0.0, 15.0, 300.0])),
            critical_path_ms=draw(st.sampled_from([0.0, 15.0, 300.0])),
            waiting_ms=draw(st.sampled_from([0.0, 500.0])),
        )
        call = SimulatedCall(CallId(f"c{number}"), ProgramId("p" * (number % 4)), facts, prompt, output, keys)
        aborted_at_ms = at_ms + draw(st.floats(0, 3000)) if draw(st.integers(0, 9)) == 0 else inf
        arrivals.append(Arrival(at_ms, call, aborted_at_ms))
    return arrivals


options = st.builds(
    EngineOptions,
    limits=st.builds(
        EngineLimits,
        slots=st.sampled_from([1, 2, 4, 16]),
        kv_tokens=st.sampled_from([600, 1200, 8000]),
        block_size=st.just(BLOCK_SIZE),
        max_num_batched_tokens=st.sampled_from([16, 64, 2048]),
        max_model_len=st.just(600),
        host_kv_tokens=st.sampled_from([0, 500, 10_000]),
    ),
    prefix_cache=st.booleans(),
    chunked_prefill=st.booleans(),
    preemption=st.sampled_from(["recompute", "swap"]),
    swap=st.just(SwapTiming(block_ms=0.1, copy_ms=0.3)),
    policy_interval_steps=st.sampled_from([1, 3]),
    preemptions_per_step_max=st.sampled_from([1, 4]),
    scheduler_ms=st.sampled_from([0.0, 0.7]),
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(arrivals=workloads(), options=options, beta=st.sampled_from([1.0, 8.0]), fit_ladder=st.booleans())
def test_a_jump_is_its_steps(
    policy: str, arrivals: list[Arrival], options: EngineOptions, beta: float, *, fit_ladder: bool
) -> None:
    """Stretches taken at once bring the same events at the same times, to the last bit, as the steps one by one."""
    jumped = run(arrivals, POLICIES[policy](), options, beta=beta, fit_ladder=fit_ladder)
    options = EngineOptions(**{name: getattr(options, name) for name in options.__struct_fields__} | {"jump": False})
    stepped = run(arrivals, POLICIES[policy](), options, beta=beta, fit_ladder=fit_ladder)

    assert stepped.happened == jumped.happened
    assert stepped.counters == jumped.counters
    assert stepped.engine.load(0.0) == jumped.engine.load(0.0)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(arrivals=workloads(), options=options, beta=st.sampled_from([1.0, 8.0]))
def test_every_call_ends_once_and_its_account_adds_up(
    policy: str, arrivals: list[Arrival], options: EngineOptions, beta: float
) -> None:
    """No call is displaced for ever: each ends, once; what it waited and was served is the time it was in."""
    lived = run(arrivals, POLICIES[policy](), options, beta=beta)
    arrived = {arrival.call.call_id: arrival for arrival in arrivals}
    ended = {what.call_id: (at_ms, what.account) for at_ms, what in lived.happened if isinstance(what, Ended)}
    started = [what.call_id for _, what in lived.happened if isinstance(what, Started)]

    assert len(started) == len(set(started))
    assert len(ended) == sum(isinstance(what, Ended) for _, what in lived.happened)
    assert ended.keys() == arrived.keys()
    for call_id, (at_ms, account) in ended.items():
        arrival = arrived[call_id]
        in_ms = at_ms - arrival.at_ms
        # a running call may be left out of steps: its prefill for want of budget, its decodes for others' prefills
        assert account.wait_ms + account.service_ms <= in_ms + 1e-6
        if options.chunked_prefill and options.limits.max_num_batched_tokens == 2048 and account.preemptions == 0:
            assert account.wait_ms + account.service_ms == pytest.approx(in_ms, abs=1e-6)
        if arrival.aborted_at_ms > at_ms:
            assert account.output_tokens == arrival.call.output_tokens
        assert account.cached_tokens % BLOCK_SIZE == 0
        assert account.cached_tokens < account.prompt_tokens == arrival.call.prompt_tokens
    assert lived.engine.load(0.0)[:3] == (0, 0, 0.0)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(arrivals=workloads(), options=options)
def test_no_call_is_put_out_and_let_in_at_once(policy: str, arrivals: list[Arrival], options: EngineOptions) -> None:
    """No call changes sides twice in a step, only a running one is put out, and no more run than there are slots."""
    lived = run(arrivals, POLICIES[policy](), options)
    running: set[CallId] = set()
    changed: dict[CallId, float] = {}
    for at_ms, what in lived.happened:
        if isinstance(what, Ended):
            running.discard(what.call_id)
            continue
        assert changed.get(what.call_id) != at_ms
        changed[what.call_id] = at_ms
        if isinstance(what, Preempted):
            running.remove(what.call_id)
        else:
            assert what.call_id not in running
            assert isinstance(what, Started | Resumed)
            running.add(what.call_id)
            assert len(running) <= options.limits.slots

    assert [at_ms for at_ms, _ in lived.happened] == sorted(at_ms for at_ms, _ in lived.happened)


@settings(max_examples=40, deadline=None)
@given(arrivals=workloads(), options=options)
def test_fcfs_is_never_displaced(arrivals: list[Arrival], options: EngineOptions) -> None:
    """First come, first served, with room for all: nobody is preempted and calls start as they came."""
    roomy = EngineOptions(
        limits=EngineLimits(slots=2, kv_tokens=4000, block_size=4, max_num_batched_tokens=64, max_model_len=600),
        prefix_cache=options.prefix_cache,
        chunked_prefill=options.chunked_prefill,
    )
    arrivals = [arrival._replace(aborted_at_ms=inf) for arrival in arrivals]
    lived = run(arrivals, policy_named("fcfs"), roomy)

    assert lived.counters.preemptions == 0
    assert [arrival.call.call_id for arrival in arrivals] == [
        what.call_id for _, what in lived.happened if isinstance(what, Started)
    ]
