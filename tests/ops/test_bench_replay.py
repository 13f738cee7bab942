"""How `make bench-gate` replays programs: what was shared still is, and no two live calls are one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas.traces.records import TraceCall, TraceProgram

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


@pytest.fixture
def replay() -> ModuleType:
    """Return the replay."""
    import replay

    return replay


def program_of(*calls: TraceCall, group: str = "") -> TraceProgram:
    """Return a program of these calls."""
    return TraceProgram(program_id="p", calls=calls, prefix_group=group)


def call(number: int, prompt: int, *, shared: int = 0, system: int = 0, parents: tuple[int, ...] = ()) -> TraceCall:
    """Return a call with an answer of 40 tokens."""
    return TraceCall(
        id=number,
        parents=parents,
        prompt_tokens=prompt,
        shared_prefix_tokens=shared,
        system_tokens=system,
        output_tokens=40,
        interrupt_s=None,
    )


def run_of(replay: ModuleType) -> Any:
    """Return a run."""
    return replay.Replay(None, [], live=1, block_tokens=32, interrupt_cap_s=1.0, seed=1, reports=None, notices=None)


def test_a_prompt_begins_as_its_source_went_on(replay: ModuleType) -> None:
    """A call that continues another begins with its prompt and its real answer, whatever that was."""
    sut = run_of(replay)
    first, second = call(1, 400, system=200), call(2, 600, shared=440, system=200, parents=(1,))
    program = replay.Program(0, replay.Arriving("trace", program_of(first, second)), began_s=0.0)
    before = replay.Call(first, sut._prompt(program, first), 0.0, 0.0, answer=[7] * 40)
    program.ended[1] = before
    prompt = sut._prompt(program, second)

    assert (400, 600) == (len(before.prompt), len(prompt))
    assert before.prompt + before.answer == prompt[:440]


def test_system_prompts_are_those_of_the_group(replay: ModuleType) -> None:
    """Programs of one group begin alike and go on differently; those of another group have nothing in common."""
    sut = run_of(replay)
    prompts = []
    for group in ("a", "a", "b"):
        arriving = replay.Arriving("trace", program_of(call(1, 400, system=200), group=group))
        prompts.append(sut._prompt(replay.Program(0, arriving, began_s=0.0), arriving.program.calls[0]))

    assert prompts[0][:200] == prompts[1][:200] != prompts[2][:200]
    assert prompts[0][200:] != prompts[1][200:]


def test_live_calls_have_threads_of_their_own(replay: ModuleType) -> None:
    """A call that starts takes a thread that no live call has, and one that ended leaves it."""
    program = replay.Program(0, replay.Arriving("trace", program_of()), began_s=0.0)
    for number in (1, 2):
        program.thread_of(number)
    del program.threads[1]

    assert ("t1", "t3") == (program.thread_of(3), program.thread_of(4))


def test_the_working_set_counts_what_programs_share_once(replay: ModuleType) -> None:
    """Two programs with 320 tokens in common and 80 of their own each: 10 full blocks and twice 2."""
    sut = run_of(replay)
    for number in (0, 1):
        arriving = replay.Arriving("trace", program_of(call(1, 400, system=320), group="a"))
        program = sut._programs[number] = replay.Program(number, arriving, began_s=0.0)
        first = arriving.program.calls[0]
        program.last = replay.Call(first, sut._prompt(program, first), 0.0, 0.0)
    sut._look()

    assert sut.working_set_blocks == 10 + 2 * 2
