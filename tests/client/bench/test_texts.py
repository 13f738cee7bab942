"""What prompts consist of: what is shared is equal, what is new is new, and nothing depends on time."""

from hypothesis import given
from hypothesis import strategies as st

from autellix.client.bench.texts import VOCABULARY, Texts, known_tokens
from tests.client.bench.conftest import arrival_of, call


def test_prompt_begins_as_its_source_went_on() -> None:
    """A call that continues another begins with its prompt and its answer, as far as its record says, and goes on."""
    first, second = call(0, prompt_tokens=60), call(1, parents=[0], prompt_tokens=100, shared_prefix_tokens=66)
    arrival, texts = arrival_of(first, second), Texts(1)
    prompt = texts.prompt("a", arrival, arrival.program.calls[0], [])
    had = [*prompt, *range(8)]
    continued = texts.prompt("a", arrival, arrival.program.calls[1], had)

    assert (60, 100) == (len(prompt), len(continued))
    assert had[:66] == continued[:66]
    assert had[66:68] != continued[66:68]


def test_system_prompts_are_those_of_the_group() -> None:
    """Programs of one group begin alike and go on differently; one of another group has nothing in common."""
    texts = Texts(1)
    arrivals = [arrival_of(call(0), name=name, group=group) for name, group in (("a", "g"), ("b", "g"), ("c", "h"))]
    one, other, stranger = (texts.prompt(each.program.program_id, each, each.program.calls[0], []) for each in arrivals)

    assert one[:20] == other[:20] != stranger[:20]
    assert one[20:] != other[20:]


def test_samples_of_one_request_have_one_prompt() -> None:
    """Calls of one group have the same prompt; a call beside them has another."""
    calls = [call(0, group=7), call(1, group=7), call(2)]
    arrival, texts = arrival_of(*calls), Texts(1)
    first, second, third = (texts.prompt("a", arrival, each, []) for each in arrival.program.calls)

    assert first == second != third


def test_prompts_depend_on_seed_and_program_only() -> None:
    """The order in which prompts are asked for changes none; the seed and the program's name change all."""
    arrival = arrival_of(call(0), call(1))
    calls = arrival.program.calls

    def prompts(seed: int, name: str, *order: int) -> list[list[int]]:
        texts = Texts(seed)
        made = {number: texts.prompt(name, arrival, calls[number], []) for number in order}
        return [made[0], made[1]]

    assert prompts(1, "a", 0, 1) == prompts(1, "a", 1, 0)
    assert prompts(1, "a", 0, 1) != prompts(2, "a", 0, 1)
    assert prompts(1, "a", 0, 1) != prompts(1, "b", 0, 1)


@given(st.integers(1, 80), st.integers(0, 80), st.integers(0, 80), st.integers(0, 100))
def test_prompt_is_as_long_as_recorded(tokens: int, shared: int, system: int, had: int) -> None:
    """Whatever is known of it, a prompt has its length and ends in at least one new token."""
    recorded = call(
        1, prompt_tokens=tokens, shared_prefix_tokens=min(shared, tokens), system_tokens=min(system, tokens)
    )
    arrival = arrival_of(recorded)
    (only,) = arrival.program.calls
    prompt = Texts(1).prompt("a", arrival, only, [-1] * had)

    assert tokens == len(prompt)
    assert prompt[-1] in VOCABULARY
    assert prompt.count(-1) in (0, min(only.shared_prefix_tokens, had, tokens - 1))
    assert 0 <= known_tokens(only) < tokens
