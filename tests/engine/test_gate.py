"""The gate before a real engine: who is held while programs do not fit together, and what that spares."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from vllm import SamplingParams
from vllm.v1.core.sched.interface import PauseState

from autellix.engine.executor import Held, ProgramOver, Started, Turn
from autellix.engine.policy import POLICIES
from autellix.engine.vllm_adapter import scheduler as adapter
from autellix.schemas.ids import CallId, ProgramId
from tests.engine.conftest import BLOCK, BLOCKS, Bench

if TYPE_CHECKING:
    from autellix.engine.policy.gate import Gate

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

STEP_MS = 10.0
CALLS, MORE = 6, 2 * BLOCK
"""Of a program that converses: how many, and by how many tokens each prompt is longer than the one before."""
LETTERS = "abcdefghijkl"


@pytest.fixture(autouse=True)
def tick(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    """Have each step take as long as another."""
    monkeypatch.setattr(adapter, "now_ms", lambda: STEP_MS * bench.scheduler.current_step)


def gate_of(bench: Bench) -> Gate:
    """Return the gate before the engine."""
    gate: Gate = bench.scheduler._gate._gate
    return gate


def over(bench: Bench, program: str) -> None:
    """Tell the scheduler that a program is over."""
    bench.tell(ProgramOver(program_id=ProgramId(program)))


def of(bench: Bench, kind: type[Turn]) -> list[str]:
    """Return the calls that such turns told of, in order."""
    return [turn.call_id for turn in bench.turns if isinstance(turn, kind)]


def large(bench: Bench, *names: str, service_ms: float = 0.0, max_tokens: int = 4) -> None:
    """Submit calls of programs of which two fit together: 13 blocks for the prompt, 8 for the answer it may have."""
    for name in names:
        bench.add(name, name[-1] * 13 * BLOCK, service_ms=service_ms, max_tokens=max_tokens)


def finish(bench: Bench) -> None:
    """Take steps until nothing is left to do; each program is over with its call."""
    while bench.engine.has_unfinished_requests():
        ended = set(bench.ended)
        bench.step()
        for name in bench.ended.keys() - ended:
            over(bench, name)
    bench.finish()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_nobody_is_held_while_all_fit(bench: Bench, policy: str) -> None:
    """With room for all, calls begin, cease to run and resume in exactly the order that they have without a gate."""
    turns = []
    for gate in ("off", "fair"):
        bench.use(policy, gate=gate, first_quantum_ms=50.0)
        for number, letter in enumerate("abcde"):
            bench.add(letter, letter * 40, max_tokens=12, service_ms=1000.0 - 200 * number)
            bench.step(2)
        finish(bench)
        turns.append(bench.turns)

    assert turns[0] == turns[1]
    assert of(bench, Started) != []
    assert of(bench, Held) == []


def test_what_does_not_fit_is_held_and_all_finish(bench: Bench) -> None:
    """Of eight programs two fit: the others wait in order, each learns why, and none is forgotten."""
    names = [f"p{letter}" for letter in "abcdefgh"]
    bench.use("plas", gate="fair")
    large(bench, *names)
    bench.step()
    told = [turn for turn in bench.turns if isinstance(turn, Held)]
    finish(bench)

    assert told[0] == Held(
        CallId(names[2]), order="plas", programs_ahead=0, wanted_tokens=21 * BLOCK, free_tokens=14 * BLOCK
    )
    assert names[2:] == of(bench, Held)
    assert names == of(bench, Started)
    assert dict.fromkeys(names, 4) == {name: ended.output_tokens for name, ended in bench.ended.items()}
    for before, after in pairwise(bench.ended[name] for name in names[2:]):
        assert 0 < before.held_ms <= after.held_ms <= after.wait_ms
    assert bench.ended[names[0]].held_ms == 0


def test_a_held_call_is_promoted(bench: Bench) -> None:
    """A program that had much, held for too long, goes before a new one that comes later, and would else be better."""
    bench.use("plas", gate="fair", beta=0.01, first_quantum_ms=50.0, fit_ladder=False)
    large(bench, "pa", "pb", max_tokens=40)
    bench.step(2)
    large(bench, "old", service_ms=1000.0)
    bench.step(3)
    large(bench, "new")
    finish(bench)

    assert ["old", "new"] == of(bench, Held)
    assert ["pa", "pb", "old", "new"] == of(bench, Started)
    assert 0 in bench.ended["old"].queues


def test_nothing_is_left_of_programs_that_are_over(bench: Bench) -> None:
    """When all programs are over the gate knows of none, and of their blocks those of first prompts are cached."""
    bench.use("plas", gate="fair")
    large(bench, "pa", "pb", "pc")
    finish(bench)
    bench.add("last", "z", max_tokens=2)
    bench.finish()

    assert list(gate_of(bench)._programs) == ["last"]
    assert len(bench.scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block) == 3 * 13


def test_a_held_call_is_aborted(bench: Bench) -> None:
    """A held call that its client gives up leaves, charged nothing; who stood behind it goes on."""
    bench.use("plas", gate="fair")
    large(bench, "pa", "pb", "pc", "pd")
    bench.step(2)
    bench.engine.abort_request(["pc"])
    waiting = [bench.scheduler._calls.of(request).queued.call_id for request in bench.scheduler.waiting]
    finish(bench)

    assert waiting == ["pd"]
    assert ["pa", "pb", "pd"] == of(bench, Started)
    assert (bench.ended["pc"].service_ms, bench.ended["pc"].output_tokens) == (0, 0)
    assert not gate_of(bench).has_held


def test_answers_of_one_call_pass_together(bench: Bench) -> None:
    """A call for two answers that is held is told of once, and both are given when it passes."""
    bench.use("plas", gate="fair")
    large(bench, "pa", "pb")
    bench.add("many", "m" * 13 * BLOCK, n=2, temperature=1.0, max_tokens=4)
    bench.step(2)
    waiting = (len(bench.scheduler.waiting), bool(bench.scheduler.waiting))
    finish(bench)

    assert waiting == (2, False)
    assert ["many"] == of(bench, Held)
    assert ["pa", "pb", "many"] == of(bench, Started)
    assert bench.ended["many"].output_tokens == 8
    assert bench.scheduler._gate._computed == {}


def test_a_paused_engine_lets_nobody_in(bench: Bench) -> None:
    """While the engine is paused, calls that pass the gate wait for its end, and then run."""
    bench.use("plas", gate="fair")
    large(bench, "pa", "pb", "pc")
    bench.step(2)
    bench.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    for _ in range(20):
        bench.step()
    paused = of(bench, Started)
    over(bench, "pa")
    bench.scheduler.set_pause_state(PauseState.UNPAUSED)
    finish(bench)

    assert paused == ["pa", "pb"]
    assert ["pa", "pb", "pc"] == of(bench, Started)


def test_a_request_past_the_worker_is_forgotten_with_its_end(bench: Bench) -> None:
    """A request without facts is a program of its own: nobody says when that is over, and nobody remembers it."""
    bench.use("plas", gate="fair")
    params = SamplingParams(max_tokens=2, temperature=0.0)
    bench.engine.add_request("unknown", {"prompt_token_ids": [65] * 100}, params)
    bench.finish()

    assert len(bench.ended) == 1
    assert gate_of(bench)._programs == {}
    assert gate_of(bench)._room.used == 0
    assert len(bench.scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block) == 100 // BLOCK


def test_programs_go_on_when_the_cache_was_reset(bench: Bench) -> None:
    """After a reset of the prefix cache all blocks are blank ones, and the programs' next calls compute all again."""
    bench.use("plas", gate="fair")
    bench.add("a1", "a" * 200, program="a")
    bench.finish()
    bench.scheduler.reset_prefix_cache()
    queue = bench.scheduler.kv_cache_manager.block_pool.free_block_queue
    ends_with = queue.get_all_free_blocks()[-1]
    bench.add("a2", "a" * 200, program="a")
    bench.finish()

    assert queue.fake_free_list_head not in queue._ends
    assert ends_with.block_hash is None
    assert bench.ended["a2"].cached_tokens == 0


def converse(bench: Bench, gate: str) -> tuple[int, int]:
    """Let programs converse, each one's next call in the step after its last; return the tokens cached, and of all."""
    bench.use("fcfs", gate=gate)
    calls = dict.fromkeys(LETTERS, 0)
    ready = set(LETTERS)
    while ready or bench.engine.has_unfinished_requests():
        for letter in sorted(ready):
            calls[letter] += 1
            if calls[letter] <= CALLS:
                prompt = letter * MORE * calls[letter]
                bench.add(f"{letter}{calls[letter]}", prompt, program=letter, max_tokens=2)
            else:
                over(bench, letter)
        ended = set(bench.ended)
        bench.step()
        ready = {name[0] for name in bench.ended.keys() - ended}
    bench.finish()
    accounts = bench.ended.values()
    return sum(each.cached_tokens for each in accounts), sum(each.prompt_tokens for each in accounts)


def test_caches_are_kept_where_they_would_be_lost(bench: Bench) -> None:
    """Programs that want twice the KV cache find most of their contexts there; without a gate, few."""
    contexts = len(LETTERS) * sum(MORE * number for number in range(CALLS))
    prompts = contexts + len(LETTERS) * CALLS * MORE
    (without, tokens), (gated, tokens_too) = converse(bench, "off"), converse(bench, "fair")

    assert len(LETTERS) * CALLS * MORE > 2 * BLOCKS * BLOCK
    assert prompts == tokens == tokens_too
    assert without < 0.2 * contexts
    assert gated > 0.9 * contexts
