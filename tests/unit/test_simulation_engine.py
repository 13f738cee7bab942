"""A simulated engine step by step, with times worked out by hand: 10 ms a step, 1 ms a prefill token, 2 a decode."""

from collections.abc import Iterable
from math import inf
from typing import Any

import pytest

from autellix.engine.executor import Load, Preempted, Resumed, Started
from autellix.engine.policy import call_queues, policy_named
from autellix.engine.simulation.calls import Ended, Happening, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.timing import EngineLimits, EngineOptions, StepTiming, SwapTiming
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts

TIMING = StepTiming(fixed_ms=10, prefill_token_ms=1, decoding_call_ms=2, context_token_ms=0)
SWAP = SwapTiming(block_ms=3, copy_ms=1)


def engine(policy: str = "fcfs", *, timing: StepTiming = TIMING, **settings: Any) -> SimulatedEngine:
    """Return an idle engine with blocks of four tokens and queues that begin at 0, 40 and 80 ms."""
    limits = {"slots": 4, "kv_tokens": 400, "block_size": 4, "max_num_batched_tokens": 100, "max_model_len": 400}
    limits |= {name: settings.pop(name) for name in list(settings) if name in EngineLimits.__struct_fields__}
    queues = call_queues(policy_named(policy), first_quantum_ms=40, queues=3, beta=1000, fit_ladder=False)
    return SimulatedEngine(queues, timing, EngineOptions(limits=EngineLimits(**limits), **settings))


def call(name: str, prompt: int, output: int, *, service_ms: float = 0.0, keys: Iterable[int] | None = None) -> Any:
    """Return a call; without `keys` it shares nothing."""
    first = 1000 * (1 + sum(name.encode()))
    own = range(first, first + (prompt + output) // 4)
    facts = ProgramFacts(service_ms=service_ms, critical_path_ms=service_ms)
    return SimulatedCall(CallId(name), ProgramId(name), facts, prompt, output, list(own if keys is None else keys))


def rest(engine: SimulatedEngine) -> list[Happening]:
    """Let an engine run until it is idle."""
    happened: list[Happening] = []
    while engine.next_ms < inf:
        happened += engine.advance(engine.next_ms)
    return happened


def told(happened: Iterable[Happening]) -> list[tuple[float, str, str]]:
    """Return when what happened to whom."""
    return [(at_ms, type(what).__name__, what.call_id) for at_ms, what in happened]


def accounts(happened: Iterable[Happening]) -> dict[str, Any]:
    """Return the accounts of those that ended."""
    return {what.call_id: what.account for _, what in happened if isinstance(what, Ended)}


def test_one_call_alone() -> None:
    """Five prompt tokens take one step of 15 ms and bring a token; each further one takes a step of 12 ms."""
    sut = engine()
    sut.add(call("a", 5, 4), 100.0)

    assert 100.0 == sut.next_ms
    assert [Happening(100.0, Started(CallId("a"), 0.0))] == sut.advance(100.0)
    assert Load(running=1, waiting=0, kv_usage=2 / 100, steps=0) == sut.load(0.0)

    happened = rest(sut)
    assert [(151.0, "Ended", "a")] == told(happened)
    account = accounts(happened)["a"]
    assert (51.0, 0.0, 5, 4, 0) == (
        account.service_ms, account.wait_ms, account.prompt_tokens, account.output_tokens, account.cached_tokens
    )  # fmt: skip
    assert Load(running=0, waiting=0, kv_usage=0.0, steps=4) == sut.load(0.0)
    assert (4, 51.0, 5) == (sut.counters.steps, sut.counters.busy_ms, sut.counters.prefill_tokens)


def test_contexts_make_steps_longer() -> None:
    """A token computed earlier costs a millisecond in each step: 5 + 10, then 12 + 5, 12 + 6, 12 + 7."""
    sut = engine(timing=StepTiming(fixed_ms=10, prefill_token_ms=1, decoding_call_ms=2, context_token_ms=1))
    sut.add(call("a", 5, 4), 0.0)

    assert [(0.0, "Started", "a"), (15.0 + 17 + 18 + 19, "Ended", "a")] == told(rest(sut))


def test_who_arrives_waits_for_the_step_under_way() -> None:
    """A call that comes in the third step (27 to 39) begins with the fourth, which is 3 ms longer for its prompt."""
    sut = engine()
    sut.add(call("a", 5, 5), 0.0)
    sut.advance(0.0)
    sut.add(call("b", 3, 1), 30.0)
    happened = rest(sut)

    assert [(39.0, "Started", "b"), (54.0, "Ended", "b"), (66.0, "Ended", "a")] == told(happened)
    assert (9.0, 15.0) == (accounts(happened)["b"].wait_ms, accounts(happened)["b"].service_ms)


def test_a_long_prompt_is_cut_to_the_budget_beside_decodes() -> None:
    """With a budget of 8 and one decode, seven tokens of a prompt of 20 are computed a step."""
    sut = engine(max_num_batched_tokens=8)
    sut.add(call("a", 8, 5), 0.0)
    sut.advance(0.0)
    sut.add(call("b", 20, 1), 1.0)

    # 18: a's prompt; 37, 56: 7 of b's; 74: the last 6; 86: a alone
    assert [(18.0, "Started", "b"), (74.0, "Ended", "b"), (86.0, "Ended", "a")] == told(rest(sut))


def test_without_chunks_a_step_is_prefills_or_decodes() -> None:
    """While a prompt of 20 is computed whole the decode stands still, and is not charged."""
    sut = engine(max_num_batched_tokens=8, chunked_prefill=False)
    sut.add(call("a", 8, 5), 0.0)
    sut.advance(0.0)
    sut.add(call("b", 20, 1), 1.0)
    happened = rest(sut)

    assert [(18.0, "Started", "b"), (48.0, "Ended", "b"), (96.0, "Ended", "a")] == told(happened)
    assert (66.0, 0.0) == (accounts(happened)["a"].service_ms, accounts(happened)["a"].wait_ms)


def test_a_prefix_is_computed_once() -> None:
    """Of eight equal tokens the second call finds one block: the last token is always computed."""
    sut = engine()
    sut.add(call("a", 8, 1, keys=[1, 2]), 0.0)
    rest(sut)
    sut.add(call("b", 8, 1, keys=[1, 2]), 100.0)
    happened = rest(sut)

    assert [(100.0, "Started", "b"), (114.0, "Ended", "b")] == told(happened)
    assert 4 == accounts(happened)["b"].cached_tokens
    assert (16, 4, 12) == (sut.counters.prompt_tokens, sut.counters.cached_tokens, sut.counters.prefill_tokens)


def test_a_better_call_takes_the_slot_of_a_worse_one() -> None:
    """At the slot limit a call of a better queue displaces; the other goes on with what the cache has of it."""
    sut = engine("plas", slots=1)
    sut.add(call("long", 8, 6, service_ms=50.0), 0.0)
    sut.advance(0.0)
    sut.add(call("short", 4, 2), 20.0)
    happened = rest(sut)

    # long: 18, 30 (step under way at 20); short: 30 to 44, 56; long again: its 10 tokens, 8 of them cached
    assert [
        (30.0, "Preempted", "long"), (30.0, "Started", "short"), (56.0, "Ended", "short"),
        (56.0, "Resumed", "long"), (68.0 + 3 * 12, "Ended", "long"),
    ] == told(happened)  # fmt: skip
    assert (1, 26.0) == (accounts(happened)["long"].preemptions, accounts(happened)["long"].wait_ms)
    assert 0 == accounts(happened)["long"].cached_tokens


def test_who_does_not_fit_displaces_nobody() -> None:
    """A better call that would need blocks of its victim waits; it takes slots, never memory."""
    sut = engine("plas", slots=1, kv_tokens=40)
    sut.add(call("long", 20, 6, service_ms=50.0), 0.0)
    sut.advance(0.0)
    sut.add(call("short", 24, 2), 20.0)

    assert ["long", "short", "short"] == [what.call_id for _, what in rest(sut)]
    assert 0 == sut.counters.preemptions


def test_who_does_not_fit_displaces_when_the_victim_is_swapped_out() -> None:
    """With swap the victim's blocks count; it comes back without computing anything again."""
    sut = engine("plas", slots=1, kv_tokens=40, host_kv_tokens=40, preemption="swap", swap=SWAP, prefix_cache=False)
    sut.add(call("long", 20, 6, service_ms=50.0), 0.0)
    sut.advance(0.0)
    sut.add(call("short", 24, 2), 20.0)
    happened = rest(sut)

    # 30: long's prompt; out with 5 blocks (16 ms) and short's prompt: 34 + 16; 12; in with 5 blocks: 12 + 16; 4 x 12
    assert [
        (30.0, "Preempted", "long"), (30.0, "Started", "short"), (92.0, "Ended", "short"),
        (92.0, "Resumed", "long"), (168.0, "Ended", "long"),
    ] == told(happened)  # fmt: skip
    assert (2, 10, 32.0) == (sut.counters.swaps, sut.counters.swapped_blocks, sut.counters.swap_ms)
    assert 44 == sut.counters.prefill_tokens


def test_who_does_not_fit_displaces_nobody_that_cannot_be_swapped_out() -> None:
    """A victim that host memory has no room for keeps its blocks."""
    sut = engine("plas", slots=1, kv_tokens=40, host_kv_tokens=16, preemption="swap", swap=SWAP, prefix_cache=False)
    sut.add(call("long", 20, 6, service_ms=50.0), 0.0)
    sut.advance(0.0)
    sut.add(call("short", 24, 2), 20.0)
    rest(sut)

    assert 0 == sut.counters.preemptions


def test_without_room_in_host_memory_it_is_computed_again() -> None:
    """A call that does not fit into host memory is preempted by recompute."""
    sut = engine("plas", slots=1, kv_tokens=80, host_kv_tokens=16, preemption="swap", swap=SWAP, prefix_cache=False)
    sut.add(call("long", 20, 6, service_ms=50.0), 0.0)
    sut.advance(0.0)
    sut.add(call("short", 24, 2), 20.0)
    rest(sut)

    assert (1, 0) == (sut.counters.preemptions, sut.counters.swaps)
    assert 20 + 24 + 21 == sut.counters.prefill_tokens


def test_when_blocks_run_out_the_worst_gives_way() -> None:
    """Two calls fill the memory; the one that came later is put out, and nothing waiting comes in that step."""
    sut = engine(kv_tokens=32)
    sut.add(call("first", 12, 9), 0.0)
    sut.add(call("second", 12, 9), 0.0)
    happened = rest(sut)

    # step 1: 3 blocks each (34 ms), step 2: the 4th each (14 ms); after 3 more (14 each) both need a 5th
    assert [(90.0, "Preempted", "second"), (90.0 + 4 * 12, "Ended", "first"), (138.0, "Resumed", "second")] == told(
        happened
    )[2:5]
    assert {"first": 0, "second": 1} == {name: account.preemptions for name, account in accounts(happened).items()}


def test_an_aborted_call_ends_with_the_step_under_way() -> None:
    """Running and waiting alike; what it generated is counted, and its blocks are free."""
    sut = engine(slots=1)
    sut.add(call("a", 5, 100), 0.0)
    sut.add(call("b", 5, 5), 0.0)
    sut.advance(0.0)
    sut.abort(CallId("b"), 20.0)
    sut.abort(CallId("a"), 20.0)
    sut.abort(CallId("unknown"), 20.0)
    happened = rest(sut)

    assert [(27.0, "Ended", "b"), (27.0, "Ended", "a")] == told(happened)
    assert (2, 0) == (accounts(happened)["a"].output_tokens, accounts(happened)["b"].output_tokens)
    assert Load(running=0, waiting=0, kv_usage=0.0, steps=2) == sut.load(0.0)


def test_the_scheduler_adds_its_time() -> None:
    """A scheduler that takes a millisecond makes every step that much longer."""
    sut = engine(scheduler_ms=1.0)
    sut.add(call("a", 5, 4), 0.0)

    assert [(0.0, "Started", "a"), (55.0, "Ended", "a")] == told(rest(sut))
    assert 4.0 == sut.counters.scheduler_ms


def test_the_policy_looks_every_so_many_steps() -> None:
    """With an interval of four steps a displacement waits for the fifth step; a free slot is taken at once."""
    sut = engine("plas", slots=1, policy_interval_steps=4)
    sut.add(call("long", 8, 9, service_ms=50.0), 0.0)
    sut.advance(0.0)
    sut.add(call("short", 4, 2), 1.0)
    happened = rest(sut)

    assert (18.0 + 3 * 12, "Preempted", "long") == told(happened)[0]
    assert (80.0, "Resumed", "long") == told(happened)[3]


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (call("a", 300, 200), "more than the KV cache holds"),
        (call("a", 8, 8, keys=[1]), "1 keys for 15 tokens"),
        (call("here", 1, 1), "already queued"),
    ],
)
def test_a_call_that_cannot_run_is_refused(refused: Any, why: str) -> None:
    """It leaves no trace."""
    sut = engine()
    sut.add(call("here", 5, 4), 0.0)

    with pytest.raises(ValueError, match=why):
        sut.add(refused, 0.0)

    assert [(0.0, "Started", "here"), (51.0, "Ended", "here")] == told(rest(sut))


def test_turns_are_the_executors() -> None:
    """What a simulated engine tells is what the real one tells."""
    sut = engine("plas", slots=1)
    sut.add(call("long", 8, 6, service_ms=50.0), 0.0)
    sut.add(call("short", 4, 2), 0.0)
    sut.add(call("later", 4, 2, service_ms=500.0), 0.0)

    assert {Started, Ended} == {type(what) for _, what in rest(sut)}
    assert not {Preempted, Resumed} & {Started, Ended}
