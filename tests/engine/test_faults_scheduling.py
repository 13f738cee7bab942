"""Faults that schedulers of this kind are known for, provoked on a real engine: thrashing, starving, leaking, dying."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from autellix.engine.executor import Preempted, Started
from autellix.engine.policy import POLICIES
from autellix.engine.vllm_adapter import scheduler as adapter
from autellix.engine.vllm_adapter.reports import Busy
from tests.engine.conftest import BLOCK, BLOCKS, BUDGET, Bench, MakeBench

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

CROWD = 8
STEP_MS = 10.0
LETTERS = "abcdefgh"


@pytest.fixture(scope="session")
def crowd(make_bench: MakeBench) -> Bench:
    """Return an engine with more slots than its blocks can serve."""
    return make_bench(max_num_seqs=CROWD)


@pytest.fixture
def tick(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    """Have each step take as long as another."""
    monkeypatch.setattr(adapter, "now_ms", lambda: STEP_MS * bench.scheduler.current_step)


def preempted(bench: Bench) -> list[str]:
    """Return who was put out, in order."""
    return [turn.call_id for turn in bench.turns if isinstance(turn, Preempted)]


def started(bench: Bench) -> list[str]:
    """Return who ran for the first time, in order."""
    return [turn.call_id for turn in bench.turns if isinstance(turn, Started)]


def watch(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    """Check after each scheduling that the step, the lists and the calls' states agree."""
    schedule = bench.scheduler.schedule

    def watched(*args: Any) -> SchedulerOutput:
        output: SchedulerOutput = schedule(*args)
        scheduler = bench.scheduler
        running = [request.request_id for request in scheduler.running]
        waiting = [request.request_id for request in [*scheduler.waiting, *scheduler.kv_holding_waiting]]
        assert output.num_scheduled_tokens.keys() <= set(running)
        assert sum(output.num_scheduled_tokens.values()) <= BUDGET
        assert sorted(scheduler.requests) == sorted(running + waiting)
        assert scheduler.requests.keys() == scheduler._calls._of_request.keys()
        assert set(running) == {each for state in scheduler._calls._of_call.values() for each in state.running}
        return output

    patch.setattr(bench.scheduler, "schedule", watched)


def crowd_in(bench: Bench, chance: random.Random, calls: int) -> dict[str, int]:
    """Let calls of every kind come while others run and leave; return how many tokens each that stayed is to get."""
    systems = ["".join(chance.choices(LETTERS, k=length)) for length in (40, 200, 330)]
    asked: dict[str, int] = {}
    for number in range(calls):
        name, tokens, several = f"c{number}", chance.choice([1, 8, 30, 60]), chance.choice([1, 1, 1, 3])
        prompt = chance.choice(systems) + "".join(chance.choices(LETTERS, k=chance.choice([1, 60, 300])))
        bench.add(
            name,
            prompt,
            service_ms=chance.choice([0.0, 30.0, 300.0, 3000.0]),
            priority=chance.choice([0, 0, 0, 1]),
            max_tokens=tokens,
            n=several,
            temperature=float(several > 1),  # vLLM has no several answers without chance
        )
        asked[name] = tokens * several
        bench.step(chance.choice([0, 0, 1, 4]))
        if chance.random() < 0.2:
            gone = chance.choice(sorted(asked))
            bench.engine.abort_request([gone, gone, "never-was"])
            asked.pop(gone)
    return asked


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_crowd_on_tight_memory(crowd: Bench, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """Calls of every length and level, some leaving, more than memory holds: each step is consistent, all end once."""
    crowd.use(policy, first_quantum_ms=20.0)
    watch(crowd, monkeypatch)
    asked = crowd_in(crowd, random.Random(7), calls=64)
    crowd.finish()

    assert {f"c{number}" for number in range(64)} == set(crowd.ended)
    assert asked == {name: crowd.ended[name].output_tokens for name in asked}
    assert preempted(crowd) != []
    assert len(crowd.scheduler._calls._queues) == 0
    assert crowd.scheduler._order._stands_at == {}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_long_prompts_do_not_thrash(crowd: Bench, policy: str) -> None:
    """Five equal prompts where four and a half fit: each is put out once at most, and nobody goes back and forth."""
    crowd.use(policy)
    tokens = (BLOCKS - 1) * BLOCK * 2 // 9
    for number in range(5):
        crowd.add(f"c{number}", LETTERS[number] * (tokens - 40), max_tokens=60)
    crowd.finish()

    assert [60] * 5 == [ended.output_tokens for ended in crowd.ended.values()]
    assert [name for name, ended in crowd.ended.items() if ended.preemptions > 1] == []


@pytest.mark.usefixtures("tick")
def test_a_better_call_takes_a_slot_at_once_an_equal_one_never(bench: Bench) -> None:
    """Long programs hold both slots: a new one's short call runs within two steps, an equal long one waits its turn."""
    bench.use("plas", first_quantum_ms=1e6, queues=2, fit_ladder=False)
    for name in ("long-a", "long-b"):
        bench.add(name, "go", max_tokens=40, service_ms=1e6)
    bench.step(4)
    bench.add("equal", "go", max_tokens=40, service_ms=1e6)
    bench.step(10)
    before = preempted(bench)
    bench.add("new", "go", max_tokens=5)
    bench.step(2)
    soon = started(bench)
    bench.finish()

    assert before == []
    assert soon == ["long-a", "long-b", "new"]
    assert len(preempted(bench)) == 1
    assert started(bench)[-1] == "equal"


@pytest.mark.usefixtures("tick")
def test_waiting_is_bounded_under_a_stream_of_better_calls(bench: Bench) -> None:
    """While new programs' short calls never cease, an old program runs after beta times what it had; they in order."""
    bench.use("plas", first_quantum_ms=100.0, beta=2.0, fit_ladder=False)
    for number in range(4):
        bench.add(f"new-{number:03}", "go", max_tokens=3)
    bench.step()
    bench.add("old", "go", max_tokens=3, service_ms=400.0)
    number = 4
    for _ in range(150):
        while len(bench.scheduler.waiting) < 4:
            bench.add(f"new-{number:03}", "go", max_tokens=3)
            number += 1
        bench.step()
        if "old" in bench.ended:
            break
    bench.finish()
    others = [name for name in started(bench) if name != "old"]

    assert 2.0 * 400.0 <= bench.ended["old"].wait_ms <= 2.0 * 400.0 + 10 * STEP_MS
    assert others == sorted(others)
    assert bench.ended["old"].queues[-1] == 0


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_nothing_is_left_of_those_that_went_at_once(bench: Bench, policy: str) -> None:
    """Fifty calls that leave together, most while they wait, leave no slot, no block and no count; a new one runs."""
    bench.use(policy)
    names = [f"c{number}" for number in range(50)]
    for name in names:
        bench.add(name, "go", max_tokens=100)
    for _ in range(3):
        bench.engine.step()
    bench.receiver.receive()
    bench.engine.abort_request(names)
    while bench.engine.engine_core.engine_core.scheduler.has_requests():
        bench.engine.step()
    told = [report.load for report in bench.receiver.receive() if isinstance(report, Busy)]
    bench.add("next", "go", max_tokens=2)
    bench.finish()

    assert (told[-1].running, told[-1].waiting, told[-1].kv_usage) == (0, 0, 0.0)
    assert bench.ended["next"].output_tokens == 2


GRAMMARS: list[dict[str, Any]] = [
    {"regex": "(a|)b"},
    {"regex": "(["},
    {"regex": "(?<=a)b"},
    {"json": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}},
    {"json": {"type": "no-such-type"}},
    {"json": {"$ref": "#/nowhere"}},
    {"grammar": "root ::= nowhere"},
    {"choice": []},
]


@pytest.mark.parametrize("grammar", GRAMMARS, ids=str)
def test_a_bad_grammar_fails_alone(bench: Bench, grammar: dict[str, Any]) -> None:
    """After a good grammar a bad one is refused as it comes, or served; the calls beside it end whole."""
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import StructuredOutputsParams

    bench.use("plas")
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    bench.add("good", "go", structured_outputs=StructuredOutputsParams(json=schema), max_tokens=20)
    bench.add("plain", "go", max_tokens=15)
    bench.step(2)
    try:
        bench.add("odd", "go", structured_outputs=StructuredOutputsParams(**grammar), max_tokens=10)
    except (ValueError, VLLMValidationError):
        expected = {"good", "plain"}
    else:
        expected = {"good", "plain", "odd"}
    bench.finish()

    assert expected == set(bench.ended)
    assert bench.ended["plain"].output_tokens == 15
