"""Which blocks of which calls are the same text."""

from collections.abc import Sequence
from itertools import combinations, takewhile

import pytest

from autellix.schemas.traces.records import TraceCall, TraceProgram
from autellix.services.simulator.contents import KEY_CHARACTERS, Contents, Keys

BLOCK = 10


def call(number: int, *parents: int, prompt: int, output: int = 5, shared: int = 0, **values: int) -> TraceCall:
    """Return a call; `prompt`, `output` and `shared` are tokens."""
    system = values.pop("system", 0)
    return TraceCall(
        id=number,
        parents=parents,
        prompt_tokens=prompt,
        shared_prefix_tokens=shared,
        system_tokens=system,
        output_tokens=output,
        interrupt_s=None,
        **values,
    )


def keys(contents: Contents, *calls: TraceCall, trace: str = "t", group: str = "") -> list[Keys]:
    """Return the keys of each call of a program that arrives."""
    program = TraceProgram(program_id="p", calls=calls, prefix_group=group)
    return [content.keys for content in contents.of_program(trace, program).values()]


def common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many elements two sequences have in common at their beginning."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def test_each_full_block_has_a_key() -> None:
    """Prompt and output are one sequence; what does not fill a block has no key."""
    ((*found,),) = keys(Contents(BLOCK), call(0, prompt=27, output=22))

    assert 4 == len(found) == len(set(found))


def test_a_prompt_continues_its_source() -> None:
    """Whole blocks of the shared prefix, output included, have the source's keys; all later ones are new."""
    first, second = keys(Contents(BLOCK), call(0, prompt=20, output=15), call(1, 0, prompt=60, shared=35))

    assert first[:3] == second[:3]
    assert set() == set(first) & set(second[3:])


def test_a_group_has_one_prompt() -> None:
    """Samples of one request share the prompt's full blocks and no other."""
    first, second = keys(
        Contents(BLOCK), call(0, prompt=25, output=20, group=1), call(1, prompt=25, output=20, group=1)
    )

    assert first[:2] == second[:2]
    assert set() == set(first[2:]) & set(second[2:])


def test_system_prompts_are_shared_between_programs() -> None:
    """Programs of one trace and prefix group have the same blocks where the system prompt is, and nowhere else."""
    contents = Contents(BLOCK)
    ((one,), (two,), (other,), (elsewhere,)) = (
        keys(contents, call(0, prompt=50, system=25), trace=trace, group=group)
        for trace, group in (("t", "a"), ("t", "a"), ("t", "b"), ("u", "a"))
    )

    assert one[:2] == two[:2]
    assert set() == set(one[2:]) & set(two[2:])
    assert set() == set(one) & (set(other) | set(elsewhere))


@pytest.mark.parametrize("block", [8, 16, 20])
def test_prompts_begin_alike_as_far_as_their_blocks(block: int) -> None:
    """The texts of two prompts have as many whole blocks in common, from the start, as their keys say."""
    contents = Contents(block)
    system = [call(0, prompt=70, system=50), call(1, 0, prompt=170, shared=75), call(2, 0, prompt=150, shared=33)]
    samples = [call(3, prompt=90, group=1), call(4, prompt=90, group=1), call(5, prompt=90)]
    prompts = [
        content
        for program in ([*system, *samples], system)
        for content in contents.of_program("t", TraceProgram(program_id="p", calls=tuple(program))).values()
    ]
    characters = max(block, KEY_CHARACTERS)

    for one, other in combinations(prompts, 2):
        blocks = min(one.prompt_tokens, other.prompt_tokens) // block
        texts = (each.prompt_text(block)[: blocks * characters] for each in (one, other))
        assert common(one.keys[:blocks], other.keys[:blocks]) == common(*texts) // characters


def test_a_prompt_has_a_character_a_token() -> None:
    """Where a key fits into a block the text is as long as the prompt has tokens; samples have the same text."""
    contents = Contents(20)
    samples = (call(0, prompt=90, group=1), call(1, prompt=90, group=1), call(2, prompt=7))
    found = contents.of_program("t", TraceProgram(program_id="p", calls=samples))
    one, other, short = (content.prompt_text(20) for content in found.values())

    assert (90, 7) == (len(one), len(short))
    assert one == other


def test_a_program_that_comes_again_is_new_text() -> None:
    """The same program of a trace has other keys each time it arrives."""
    contents = Contents(BLOCK)
    ((first,), (again,)) = (keys(contents, call(0, prompt=50)) for _ in range(2))

    assert set() == set(first) & set(again)
