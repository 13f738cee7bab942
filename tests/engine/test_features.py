"""vLLM's features under every policy and gate, on a real engine: what comes out is what stock order gives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

import pytest

from autellix.engine.executor import Preempted, Resumed, Started
from autellix.engine.policy import POLICIES
from autellix.engine.policy.gittins import rank_table
from autellix.schemas.messages import Priorities

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

LONG = "a long story about programs and engines. " * 20


@pytest.fixture(params=[*product(sorted(POLICIES), ["off"]), ("atlas", "fair"), ("fcfs", "plain")], ids="-".join)
def engine(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """Return the idle engine under each policy and behind each gate, with an empty cache."""
    policy, gate = request.param
    bench.use(policy, gate=gate)
    return bench


@pytest.fixture(scope="session")
def alone(bench: Bench) -> Callable[[str, int], str]:
    """Return what generates a text with nothing else in the engine."""

    def generate(prompt: str, tokens: int) -> str:
        bench.use("fcfs")
        bench.add("alone", prompt, max_tokens=tokens)
        bench.finish()
        return bench.texts["alone"][0]

    return generate


def test_displaced_calls_end_as_if_alone(bench: Bench, alone: Callable[[str, int], str]) -> None:
    """Calls that were displaced, chunked and resumed generate, token by token, what they generate alone."""
    prompts = {f"c{number}": f"{number} {LONG[: 40 * number]}" for number in range(6)}
    expected = {name: {0: alone(prompt, 20)} for name, prompt in prompts.items()}
    bench.use("plas", first_quantum_ms=5.0)
    for number, (name, prompt) in enumerate(prompts.items()):
        bench.add(name, prompt, max_tokens=20, service_ms=1000.0 - 100 * number)
        bench.step(3)
    bench.finish()

    assert expected == bench.texts
    assert [turn for turn in bench.turns if isinstance(turn, Preempted)] != []


def test_every_call_is_reported_once(engine: Bench) -> None:
    """Each call starts once, is preempted as often as it resumes, and its account says so."""
    for number in range(8):
        engine.add(f"c{number}", f"{number} say", max_tokens=10, service_ms=100.0 * (8 - number))
        engine.step()
    engine.finish()
    names = [f"c{number}" for number in range(8)]

    assert names == sorted(turn.call_id for turn in engine.turns if isinstance(turn, Started))
    assert names == sorted(engine.ended)
    for name, ended in engine.ended.items():
        put_out = [turn for turn in engine.turns if isinstance(turn, Preempted) and turn.call_id == name]
        resumed = [turn for turn in engine.turns if isinstance(turn, Resumed) and turn.call_id == name]
        assert len(put_out) == len(resumed) == ended.preemptions
        assert ended.output_tokens == 10
        assert ended.service_ms > 0
        assert len(ended.queues) >= 1


def test_prefix_cache(engine: Bench) -> None:
    """A second call with the same prompt reads it from the cache, and the account says how much."""
    engine.add("first", LONG)
    engine.finish()
    engine.add("second", LONG)
    engine.finish()

    assert engine.ended["first"].cached_tokens == 0
    assert engine.ended["second"].cached_tokens == (len(LONG) - 1) // 32 * 32
    assert engine.texts["first"] == engine.texts["second"]


def test_long_prompt_in_chunks(engine: Bench) -> None:
    """A prompt longer than a step's budget is computed in chunks while a short call goes on decoding."""
    engine.add("short", "go", max_tokens=30)
    engine.step(4)
    engine.add("long", LONG, max_tokens=2)
    before = engine.scheduler.requests[next(iter(engine.scheduler.requests))].num_output_tokens
    engine.step(3)
    after = engine.scheduler.requests[next(iter(engine.scheduler.requests))].num_output_tokens
    engine.finish()

    assert after > before
    assert engine.ended["long"].prompt_tokens == len(LONG)
    assert engine.ended["long"].output_tokens == 2


def test_several_answers(engine: Bench) -> None:
    """A call for several answers is one call: charged once, reported once, with all its tokens."""
    engine.add("many", "go", n=3, temperature=1.0, max_tokens=6)
    engine.add("one", "go", max_tokens=6)
    engine.finish()

    assert len(engine.texts["many"]) == 3
    assert engine.ended["many"].output_tokens == 18
    assert engine.ended["one"].output_tokens == 6


def test_abort_while_waiting_running_and_preempted(bench: Bench) -> None:
    """Wherever a call stands when its client leaves, it leaves the engine, is charged what it had, and is reported."""
    bench.use("plas")
    for name in ("running-a", "running-b"):
        bench.add(name, "go", max_tokens=200, service_ms=1000.0)
    bench.step(4)
    bench.add("waiting", "go", service_ms=1e9)
    bench.add("new-a", "go", max_tokens=50)
    bench.add("new-b", "go", max_tokens=50)
    bench.step(3)
    preempted = {turn.call_id for turn in bench.turns if isinstance(turn, Preempted)}
    bench.engine.abort_request(["running-a", "waiting", "new-a"])
    bench.finish()

    assert preempted == {"running-a", "running-b"}
    assert {"running-a", "running-b", "waiting", "new-a", "new-b"} == set(bench.ended)
    assert bench.ended["waiting"].service_ms == 0.0
    assert bench.ended["running-a"].service_ms > 0.0
    assert bench.ended["running-b"].output_tokens == 200


def test_structured_output(engine: Bench) -> None:
    """A grammar holds, also for a call that had to wait while it was compiled."""
    from vllm.sampling_params import StructuredOutputsParams

    for number in range(4):
        chosen = StructuredOutputsParams(choice=["red", "green"])
        engine.add(f"c{number}", "colour?", structured_outputs=chosen, max_tokens=12, ignore_eos=False)
    engine.finish()

    assert {texts[0] for texts in engine.texts.values()} <= {"red", "green"}
    assert len(engine.ended) == 4


def test_priority(engine: Bench) -> None:
    """The request's own priority goes before the policy, and equal ones follow it."""
    for number in range(2):
        engine.add(f"first-{number}", "go", max_tokens=30)
    engine.step(3)
    engine.add("later", "go", max_tokens=2, service_ms=0.0)
    engine.add("urgent", "go", max_tokens=2, service_ms=1e9, priority=-1)
    engine.finish()
    started = [turn.call_id for turn in engine.turns if isinstance(turn, Started)]

    assert started == ["first-0", "first-1", "urgent", "later"]
    assert [turn for turn in engine.turns if isinstance(turn, Preempted)] != []


def test_kv_exhaustion_takes_the_worst(bench: Bench) -> None:
    """When blocks run out, the running call of the worst queue gives way; a newcomer takes no running call's blocks."""
    bench.use("plas")
    bench.add("old", "x" * 980, max_tokens=40, service_ms=1e6)
    bench.add("young", "y" * 980, max_tokens=40, service_ms=1.0)
    bench.step(12)
    bench.add("new", "z" * 700, max_tokens=4)
    bench.step(4)
    early = [turn for turn in bench.turns if isinstance(turn, Preempted)]
    bench.finish()
    preempted = {turn.call_id for turn in bench.turns if isinstance(turn, Preempted)}

    assert early == []
    assert preempted == {"old"}
    assert {name: ended.output_tokens for name, ended in bench.ended.items()} == {"old": 40, "young": 40, "new": 4}


def test_preemptions_a_step_are_bounded(bench: Bench) -> None:
    """However many better calls wait, a step puts out at most so many; with the bound at one, one."""
    bench.use("plas", preemptions_per_step_max=1)
    for name in ("a", "b"):
        bench.add(name, "go", max_tokens=40, service_ms=1000.0)
    bench.step(4)
    for name in ("c", "d"):
        bench.add(name, "go", max_tokens=4)
    most = 0
    for _ in range(12):
        before = len(bench.turns)
        bench.step()
        most = max(most, sum(isinstance(turn, Preempted) for turn in bench.turns[before:]))
    bench.finish()

    assert most == 1


def test_policy_every_few_steps(bench: Bench) -> None:
    """With the policy looked at every eighth step, free slots fill at once and displacement waits for its turn."""
    bench.use("plas", policy_interval_steps=8)
    for name in ("a", "b"):
        bench.add(name, "go", max_tokens=60, service_ms=1000.0)
    bench.step(2)
    assert {turn.call_id for turn in bench.turns} == {"a", "b"}
    bench.add("new", "go", max_tokens=2)
    steps = []
    while not any(isinstance(turn, Preempted) for turn in bench.turns):
        bench.step()
        steps.append(bench.scheduler.current_step)
    bench.finish()

    assert (steps[-1] - 1) % 8 in (0, 1)


def test_a_prefill_under_way_does_not_give_way(bench: Bench) -> None:
    """A call that computes its prompt keeps its slot until it brought a token; what it computed is not lost."""
    bench.use("plas", first_quantum_ms=1e6)
    bench.add("decoding", "go", max_tokens=60)
    bench.step(2)
    bench.add("long", "p" * 900, max_tokens=20, service_ms=1e7)
    bench.step()
    bench.add("new", "go", max_tokens=2)
    bench.step()
    early = [turn for turn in bench.turns if isinstance(turn, Preempted)]
    bench.finish()

    assert early == []
    assert [turn.call_id for turn in bench.turns if isinstance(turn, Preempted)] == ["long"]


def test_learnt_while_it_runs(bench: Bench) -> None:
    """What the worker tells comes before the next step: a call of a kind that ends soon goes first."""
    bench.use("gittins")
    for name in ("a", "b"):
        bench.add(name, "go", max_tokens=40, kind="long")
    bench.step(3)
    bench.tell(Priorities(kinds={"long": rank_table([1e6] * 30), "short": rank_table([50.0] * 30)}))
    bench.step()
    for name, kind in (("late", "long"), ("soon", "short")):
        bench.add(name, "go", max_tokens=4, kind=kind)
    bench.finish()
    started = [turn.call_id for turn in bench.turns if isinstance(turn, Started)]

    assert started == ["a", "b", "soon", "late"]
