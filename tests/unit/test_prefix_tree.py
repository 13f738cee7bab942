"""The rule `prefix_tree`: what it remembers of each engine, and where it sends calls."""

from __future__ import annotations

import random
from collections import Counter
from itertools import takewhile
from string import ascii_letters
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.schemas.ids import EngineId
from autellix.schemas.messages import RoutedCall
from autellix.services.load_balancer.choices import CROWDED, Candidate, Choice, Known, prefix_tree
from autellix.services.load_balancer.prefixes import CHUNK_BYTES, PrefixTree, prompt_of

if TYPE_CHECKING:
    from tests.unit.conftest import World

chunks = st.lists(st.sampled_from("abc"), min_size=1, max_size=8)
"""A prompt, a letter a chunk: few letters, so that many prompts begin alike."""
AMPLE = 10**6


def body(letters: list[str] | str, **other: object) -> bytes:
    """Return a request whose prompt has one chunk of each letter, and some bytes more."""
    text = "".join(letter * CHUNK_BYTES for letter in letters)
    return msgspec.json.encode({"model": "m", **other, "prompt": text})


def common(one: list[str], other: list[str]) -> int:
    """Return how many letters two prompts have in common at their beginning."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def sent(world: World, letters: list[str] | str, program: str = "p", tokens: int = 100) -> RoutedCall:
    """Let a call with this prompt arrive, and return where it goes."""
    routed, _ = world.admit(program, tokens, body=body(letters))
    assert isinstance(routed.message, RoutedCall)
    return routed.message


def chosen(prompts: list[list[str]], used: list[int], *, seed: int = 1) -> list[Choice]:
    """Return the rule's choices for prompts one after the other, among engines with constant load."""
    choose, chance = prefix_tree(0), random.Random(seed)
    candidates = [Candidate(EngineId(f"e{n}"), calls, PrefixTree(AMPLE)) for n, calls in enumerate(used)]
    return [choose(Known(None, 100, body(prompt)), candidates, chance) for prompt in prompts]


@given(st.lists(st.tuples(chunks, st.integers(0, 500))), st.integers(1, 600))
def test_memory_is_bounded(prompts: list[tuple[list[str], int]], capacity: int) -> None:
    """Whatever lengths are said to be, no more than the capacity is remembered, and at least a token a chunk."""
    tree = PrefixTree(capacity)
    for letters, tokens in prompts:
        tree.add(prompt_of(body(letters)), tokens)

        assert sum(tree._tokens_of.values()) == tree._tokens <= capacity
        assert len(tree._tokens_of) <= capacity


@given(st.lists(chunks), chunks)
def test_the_longest_match_is_found(prompts: list[list[str]], prompt: list[str]) -> None:
    """With room for all of them, a prompt matches as far as it begins like one of those before."""
    tree = PrefixTree(AMPLE)
    for letters in prompts:
        tree.add(prompt_of(body(letters)), 100)

    assert max((common(prompt, each) for each in prompts), default=0) == tree.matched(prompt_of(body(prompt)))


@given(st.lists(chunks, min_size=1), st.integers(1, 200))
def test_what_was_sent_last_is_kept(prompts: list[list[str]], capacity: int) -> None:
    """The oldest prompt goes first, of each its end: of the last one all is there that there is room for."""
    tree = PrefixTree(capacity)
    for letters in prompts:
        tree.add(prompt_of(body(letters)), 0)

    assert min(len(prompts[-1]), capacity) == tree.matched(prompt_of(body(prompts[-1])))


@given(st.lists(chunks), st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers())
def test_the_choice_is_a_candidate(prompts: list[list[str]], used: list[int], seed: int) -> None:
    """An engine is chosen only among those that may be, and are not crowded; chance comes from outside only."""
    first, again = (chosen(prompts, used, seed=seed) for _ in range(2))
    free = {f"e{n}" for n, calls in enumerate(used) if calls + 1 <= CROWDED * (min(used) + 1)}

    assert first == again
    assert free >= {choice.engine_id for choice in first}


def test_a_program_goes_where_its_prefix_is(make_world: type[World]) -> None:
    """Conversations that grow stay on the engine where they began, however short, and none makes it a home."""
    world = make_world(policy="prefix_tree").heard("e0", "e1", "e2")
    talks = {program: "".join(program * 4) for program in "abcdefghi"}
    first = {program: sent(world, talk, program).engine_id for program, talk in talks.items()}
    again = {program: sent(world, talk + "xyz", program).engine_id for program, talk in talks.items()}

    assert first == again
    assert {"e0": 3, "e1": 3, "e2": 3} == Counter(first.values())
    assert len(world.balancer._homes) == 0


def test_half_a_prompt_is_not_enough(make_world: type[World]) -> None:
    """A prompt of which half or less is cached goes to the least used engine."""
    world = make_world(policy="prefix_tree").heard("e0", "e1")
    first, second = sent(world, "ab"), sent(world, "abxy")

    assert first.engine_id != second.engine_id
    assert "short prefix: least used" == second.reason


def test_without_sharing_load_is_even(make_world: type[World]) -> None:
    """Prompts that share nothing are spread evenly."""
    world = make_world(policy="prefix_tree").heard("e0", "e1", "e2", "e3")
    taken = Counter(sent(world, letter * 3).engine_id for letter in ascii_letters)

    assert {"e0": 13, "e1": 13, "e2": 13, "e3": 13} == taken


def test_a_crowded_engine_is_passed_over(make_world: type[World]) -> None:
    """One prompt sent again and again spreads before any engine has more than twice the calls of another."""
    world = make_world(policy="prefix_tree").heard("e0", "e1", "e2")
    reasons = Counter(sent(world, "aaaa", f"p{number}").reason for number in range(60))
    least, *_, most = sorted(world.used().values())

    assert most <= CROWDED * (least + 1)
    assert {"short prefix: least used": 1} == {key: n for key, n in reasons.items() if key.startswith("short")}
    assert 0 < reasons["long prefix, but crowded: least used"] < reasons["long prefix: longest match"]


@pytest.mark.parametrize("how", ["down", "restarted"])
def test_an_engine_that_left_is_forgotten(make_world: type[World], how: str) -> None:
    """What was sent to an engine is forgotten when it goes or starts anew: its cache is empty."""
    world = make_world(policy="prefix_tree").heard("e0")
    sent(world, "aaaa")
    if how == "down":
        world.down("e0")
    world.up("e0", "i2")

    assert "short prefix: least used" == sent(world, "aaaa").reason


@pytest.mark.parametrize(
    ("kv_tokens", "reason"), [(0, "long prefix: longest match"), (150, "short prefix: least used")]
)
def test_memory_is_as_large_as_the_engines(make_world: type[World], kv_tokens: int, reason: str) -> None:
    """An engine's tree holds as many tokens as its KV cache, or the setting's where that is not known."""
    world = make_world(policy="prefix_tree")
    world.up("e0", kv_tokens=kv_tokens)
    for letters in ("aaaa", "bbbb"):
        world.finish(sent(world, letters, tokens=100))

    assert reason == sent(world, "aaaa").reason


def test_the_setting_bounds_an_engine_that_was_there_before(make_world: type[World]) -> None:
    """Of an engine that is known by its heartbeat alone, the setting says what it holds."""
    world = make_world(policy="prefix_tree", prefix_tree_tokens=150)
    world.load("e0")
    for letters in ("aaaa", "bbbb"):
        world.finish(sent(world, letters, tokens=100))

    assert "short prefix: least used" == sent(world, "aaaa").reason


def test_what_makes_a_prefix() -> None:
    """The prompt counts, wherever it stands in the request, with its model and tools; sampling does not."""
    turn = {"role": "user", "content": "a" * 3 * CHUNK_BYTES}
    talk = {"model": "m", "messages": [turn]}
    longer = {"max_tokens": 5, "messages": [turn, turn], "model": "m", "temperature": 0.5}
    first, grown, tools, model = (
        prompt_of(msgspec.json.encode(each))
        for each in (talk, longer, {**talk, "tools": [{"name": "f"}]}, {**talk, "model": "n"})
    )

    assert first.keys == grown.keys[:3]
    assert 3 == len(first.keys)
    assert set() == set(first.keys) & (set(tools.keys) | set(model.keys))
    assert ([], 0) == prompt_of(b"{}")
