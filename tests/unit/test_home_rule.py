"""The rule `home`: where a program begins, and when a call leaves home."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.schemas.ids import EngineId
from autellix.services.load_balancer.choices import Candidate, Choice, Known, home
from autellix.services.load_balancer.prefixes import CHUNK_BYTES, PrefixTree
from autellix.services.load_balancer.work import CallWork

if TYPE_CHECKING:
    from tests.unit.conftest import World

HOME, OTHER = EngineId("e0"), EngineId("e1")
MEASURED: dict[str, Any] = {"kv_tokens": 100_000, "pool_ms": 10_000.0}
"""A token takes 0.1 ms."""


def engine(name: EngineId, used: int, *, wait_ms: float = 0.0, token_ms: float = 0.1) -> Candidate:
    """Return an engine with so many calls."""
    return Candidate(name, used, PrefixTree(1000), wait_ms, token_ms)


def chosen(*candidates: Candidate, prompt_tokens: int = 1000, work_ms: float = 50.0) -> Choice:
    """Return where a call goes whose program is at home on `e0`."""
    known = Known(HOME, prompt_tokens, b"{}", work_ms)
    return home(2048)(known, list(candidates), random.Random(1))


@given(st.lists(st.integers(0, 200), min_size=1, max_size=4), st.integers(0, 5000), st.integers(0, 500))
def test_home_unless_another_is_sooner(used: list[int], prompt_tokens: int, work_ms: int) -> None:
    """A call leaves home exactly if the least used engine has it sooner, its whole prompt included."""
    candidates = [engine(EngineId(f"e{number}"), calls, token_ms=1.0) for number, calls in enumerate(used)]
    choice = chosen(*candidates, prompt_tokens=prompt_tokens, work_ms=float(work_ms))
    is_sooner = (min(used) + 1) * (work_ms + prompt_tokens) < (used[0] + 1) * work_ms

    assert is_sooner == (choice.engine_id != HOME) == choice.becomes_home
    assert not is_sooner or used[int(choice.engine_id[1:])] == min(used)


def test_reason_has_the_numbers() -> None:
    """Who leaves a busy home is told what both ways would take."""
    choice = chosen(engine(HOME, 63), engine(OTHER, 7))

    assert (OTHER, True) == (choice.engine_id, choice.becomes_home)
    assert "home is busy: 3.2 s against 1.2 s, the prompt computed again" == choice.reason


@pytest.mark.parametrize(
    ("here", "there"),
    [({"wait_ms": 1.0}, {}), ({}, {"wait_ms": 1.0}), ({"token_ms": 0.0}, {"token_ms": 0.0})],
    ids=["home holds", "the other holds", "nothing measured"],
)
def test_what_is_not_known_keeps_a_call_at_home(here: dict[str, float], there: dict[str, float]) -> None:
    """A call stays, however busy its home is, where an engine holds programs or the time of a prompt is unknown."""
    assert Choice(HOME, "home engine") == chosen(engine(HOME, 1000, **here), engine(OTHER, 0, **there))


def test_an_engine_that_has_measured_nothing_is_taken_to_be_as_fast() -> None:
    """An engine that has just come up takes calls from a busy home before it has computed a prompt."""
    assert OTHER == chosen(engine(HOME, 63), engine(OTHER, 7, token_ms=0.0)).engine_id


def test_short_calls_stay(world: World) -> None:
    """A conversation stays on the engine where it began, however short its prompts and however busy that is."""
    first = world.route("p")
    world.load(first.engine_id, calls=50)

    assert {first.engine_id} == {world.route("p", tokens).engine_id for tokens in (10, 100, 5000)}


def test_a_wide_program_spreads(world: World) -> None:
    """Parallel calls of one program leave its home once they wait longer for each other than a prompt takes."""
    for name in ("e0", "e1"):
        world.load(name, **MEASURED)
    world.finish(world.route("p"), service_ms=400.0)  # with 4 slots, 100 ms of an engine's time
    taken = Counter(world.route("p", 4000).engine_id for _ in range(12))  # 400 ms to compute a prompt again

    assert 100.0 == world.balancer._work.of("m")
    assert [5, 7] == sorted(taken.values())  # a sixth would take 600 ms, on the other engine 500; and that is home then


def test_programs_begin_where_their_first_prompt_is(world: World) -> None:
    """Programs with the same long beginning share an engine while it is not crowded, then others."""
    prompt = msgspec.json.encode({"model": "m", "prompt": "a" * 8 * CHUNK_BYTES})
    reasons, engines = [], []
    for number in range(4):
        routed: Any = world.admit(f"p{number}", 300, body=prompt)[0].message
        reasons.append(routed.reason)
        engines.append(routed.engine_id)

    assert engines[0] == engines[1] != engines[2]
    assert "no home, long prefix: longest match" == reasons[1]
    assert "no home, long prefix, but crowded: least used" == reasons[2]


def test_a_home_for_each_model(make_world: type[World]) -> None:
    """A program that uses two models in turn stays where each of its caches is."""
    world = make_world()
    for name, model in (("e0", "m"), ("e1", "m"), ("e2", "n"), ("e3", "n")):
        world.load(name, models=(model,))
    taken: dict[str, set[str]] = {"m": set(), "n": set()}
    for _ in range(10):
        for model, engines in taken.items():
            engines.add(world.admit("p", model=model)[0].message.engine_id)  # type: ignore[attr-defined]

    assert [1, 1] == [len(engines) for engines in taken.values()]


def test_work_is_learnt_once(world: World) -> None:
    """An end that is heard twice, and one without service, teaches nothing."""
    routed, refused = world.route("p"), world.route("q")
    for _ in range(2):
        world.finish(routed, service_ms=400.0)
    world.finish(refused)

    assert 100.0 == world.balancer._work.of("m")


def test_work_follows_the_calls() -> None:
    """The mean is of each model by itself, and follows when calls change."""
    work = CallWork()
    for _ in range(200):
        work.ended("small", 100.0, 4)
    work.ended("large", 8000.0, 4)
    for _ in range(200):
        work.ended("small", 1000.0, 4)

    assert 0.0 == work.of("unknown")
    assert 2000.0 == work.of("large")
    assert 250.0 == pytest.approx(work.of("small"), rel=0.01)
