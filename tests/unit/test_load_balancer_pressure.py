"""The load balancer while engines hold programs: who takes a call, what is moved, and what is refused."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.schemas.ids import EngineId
from autellix.schemas.messages import (
    CallFailed,
    CallRouted,
    Failed,
    ReleasedCall,
    ReleaseHeld,
    RoutedCall,
)
from autellix.services.load_balancer.choices import Candidate, Choice, Known, autellix, least_used
from autellix.services.load_balancer.prefixes import PrefixTree

if TYPE_CHECKING:
    from autellix.services.core import Out
    from tests.unit.conftest import World

LONG = 5000
SHORT = 2048
HOLDS: dict[str, Any] = {"programs_held": 3, "held_tokens": 30_000, "expected_wait_ms": 12_000.0}
MEASURED: dict[str, Any] = {"kv_tokens": 100_000, "pool_ms": 16_000.0}
"""A token takes 0.16 ms."""


def holding(world: World) -> World:
    """Let `e0` hold programs for 12 s."""
    world.load("e0", **MEASURED, **HOLDS)
    return world


def give_back(world: World, routed: RoutedCall) -> list[Out]:
    """Let a call's engine give it back."""
    released = ReleasedCall(call=routed.call, program=routed.program, engine_id=routed.engine_id)
    return list(world.balancer.handle(released, world.now_ms))


def routes(outs: list[Out]) -> list[RoutedCall]:
    """Return the calls that are sent to an engine."""
    return [out.message for out in outs if isinstance(out.message, RoutedCall)]


def orders(outs: list[Out]) -> list[tuple[str, ReleaseHeld]]:
    """Return the orders to give something back, and where they go."""
    return [(out.subject, out.message) for out in outs if isinstance(out.message, ReleaseHeld)]


def algorithm_2(known: Known, candidates: list[Candidate], chance: random.Random) -> Choice:
    """Return the choice of paper Algorithm 2 word by word."""
    if known.prompt_tokens <= SHORT:
        return Choice(least_used(candidates, chance).engine_id, "short prompt: least used")
    if known.home and any(each.engine_id == known.home for each in candidates):
        return Choice(known.home, "long prompt: home engine")
    return Choice(least_used(candidates, chance).engine_id, "long prompt: least used becomes home", becomes_home=True)


calls = st.tuples(st.sampled_from([None, "e0", "e1", "e9"]), st.integers(SHORT - 1, SHORT + 2))


@given(st.lists(st.tuples(calls, st.lists(st.integers(0, 3), min_size=1, max_size=4))), st.integers())
def test_nothing_changes_where_nobody_is_held(story: list[tuple[Any, list[int]]], seed: int) -> None:
    """Without held programs every choice, its reason and its use of chance are those of Algorithm 2."""
    choose, chance, again = autellix(SHORT), random.Random(seed), random.Random(seed)
    for (home, tokens), used in story:
        candidates = [Candidate(EngineId(f"e{n}"), calls, PrefixTree(1)) for n, calls in enumerate(used)]
        known = Known(EngineId(home) if home else None, tokens, b"{}")

        assert algorithm_2(known, candidates, again) == choose(known, candidates, chance)


@pytest.mark.parametrize("policy", ["home", "autellix"])
@pytest.mark.parametrize("tokens", [SHORT, LONG])
def test_the_shortest_wait_comes_first(make_world: type[World], policy: str, tokens: int) -> None:
    """A call without a home goes where programs are held for the shortest time, whatever the load, and says so."""
    world = holding(make_world(policy=policy).heard("e0", "e1"))
    world.load("e1", calls=50, programs_held=1, expected_wait_ms=100.0)
    routed = world.route("p", tokens)

    assert "e1" == routed.engine_id
    assert "shortest wait" in routed.reason


def test_equal_waits_share(world: World) -> None:
    """Among engines with the same wait the least used one takes the call."""
    world.load("e2", calls=5)
    holding(world)

    assert {"e1"} == {world.route(f"p{number}").engine_id for number in range(4)}


def test_a_call_goes_home_first(world: World) -> None:
    """A home that holds others may still keep this program's cache: only it knows."""
    holding(world)

    assert "e0" == world.route("p", LONG, home="e0").engine_id


def test_an_idle_engine_takes_over(world: World) -> None:
    """With each heartbeat an engine where nothing waits asks for what costs less to compute than the longest wait."""
    world.load("e2", **MEASURED, programs_held=1, expected_wait_ms=500.0)
    holding(world)

    expected = ReleaseHeld(prompt_tokens_max=75_000, models=("m",), taker=EngineId("e1"), asked_at_ms=world.now_ms)
    assert [("autellix.internal.engines.e0.release", expected)] == orders(world.load("e1", **MEASURED))
    assert [("autellix.internal.engines.e0.release", expected)] == orders(world.load("e1", **MEASURED))


def test_the_time_of_a_token_is_known_by_the_other(world: World) -> None:
    """An engine that has computed nothing yet is taken to be as fast as the one it takes from."""
    holding(world)

    assert [75_000] == [order.prompt_tokens_max for _, order in orders(world.load("e1"))]


@pytest.mark.parametrize(
    "load",
    [{"waiting": 1}, {"programs_held": 1}, {"state": "draining"}, {"models": ("other",)}],
    ids=lambda load: next(iter(load)),
)
def test_who_takes_nothing_over(world: World, load: dict[str, Any]) -> None:
    """An engine where something waits or is held, that drains, or that serves other models asks for nothing."""
    holding(world)

    assert [] == orders(world.load("e1", **{**MEASURED, **load}))


def test_nothing_to_take_over(world: World) -> None:
    """Nothing is asked for when nobody holds, nor before any engine has measured the time of a token."""
    assert [] == orders(world.load("e1", **MEASURED))
    world.load("e0", **HOLDS)
    assert [] == orders(world.load("e1"))


@pytest.mark.parametrize(
    "settings", [{"move_held": False}, {"policy": "least_used"}], ids=lambda each: next(iter(each))
)
def test_moves_can_be_off(make_world: type[World], settings: dict[str, Any]) -> None:
    """Nothing is moved where the setting says so, nor by the rules that are there to compare with."""
    world = holding(make_world(**settings).heard("e0", "e1"))

    assert [] == orders(world.load("e1", **MEASURED))


def test_a_released_call_moves(world: World) -> None:
    """What an engine gave back runs elsewhere, and its program lives there from now on; the reason has the numbers."""
    routed = world.route("p", LONG, home="e0")
    holding(world)
    world.load("e1", **MEASURED)
    to_engine, event = give_back(world, routed)
    (moved,) = routes([to_engine])

    assert ("e1", "autellix.internal.engines.e1.calls", True) == (moved.engine_id, to_engine.subject, moved.moved)
    assert "home holds: 12.0 s against 0.8 s to compute again" == moved.reason
    assert isinstance(event.message, CallRouted)
    assert (moved.reason, True) == (event.message.reason, event.message.becomes_home)
    assert {"e0": 0, "e1": 1} == world.used()
    assert "e1" == world.route("p", LONG, home="e0").engine_id


def test_the_calls_of_a_program_stay_together(world: World) -> None:
    """Where its first call was moved to the others follow, however busy it is there."""
    world.load("e2")
    first, second = (world.route("p", LONG, home="e0") for _ in range(2))
    holding(world)
    (moved,) = routes(give_back(world, first))
    world.load(moved.engine_id, calls=50)
    (followed,) = routes(give_back(world, second))

    assert "e0" != moved.engine_id == followed.engine_id


def test_a_call_is_released_once(world: World) -> None:
    """A second delivery of what gives a call back, or one after its end, changes nothing; it is said where it is."""
    routed = world.route("p", LONG, home="e0")
    give_back(world, routed)
    used = world.used()
    (said,) = give_back(world, routed)
    assert isinstance(said.message, CallRouted)
    assert used == world.used()
    world.finish(routed)
    assert [] == give_back(world, routed)


def test_a_released_call_of_another_balancer(world: World) -> None:
    """A balancer that started anew routes what was sent by the one before it."""
    routed = world.route("p", LONG, home="e0")
    world.balancer._engine_of.clear()
    world.balancer._engines[EngineId("e0")].calls.clear()

    assert ["e1"] == [each.engine_id for each in routes(give_back(world, routed))]


def test_a_released_call_of_an_engine_that_is_gone(world: World) -> None:
    """A call that runs elsewhere since its engine is gone stays there, though that engine gave it back before."""
    routed = world.route("p", LONG, home="e0")
    world.down("e0")

    (said,) = give_back(world, routed)
    assert isinstance(said.message, CallRouted)
    assert {"e1": 1} == world.used()


def test_nobody_else_is_there(world: World) -> None:
    """A call that was given back and finds no other engine fails as safe to retry."""
    routed = world.route("p", LONG, home="e0")
    world.load("e1", state="draining")
    event, frame = give_back(world, routed)

    assert isinstance(event.message, CallFailed)
    assert isinstance(frame.message, Failed)
    assert (503, "no_engine", True) == (frame.message.status, frame.message.error.code, frame.message.retry_safe)


def test_engines_are_full(world: World) -> None:
    """A call that would be held beyond its deadline is refused, with the shortest wait as the time to come again."""
    holding(world)
    world.load("e1", programs_held=1, expected_wait_ms=4200.0)
    event, frame = world.admit("p", LONG, deadline_at_ms=4100.0)

    assert isinstance(event.message, CallFailed)
    assert isinstance(frame.message, Failed)
    assert (503, "engine_full", True) == (frame.message.status, frame.message.error.code, frame.message.retry_safe)
    assert 4.2 == frame.message.retry_after_s
    assert 0 == len(world.balancer._engine_of)


def test_late_is_not_full(world: World) -> None:
    """A call whose deadline is over while nobody is held goes on: its engine says that it is late."""
    world.now_ms = 10.0

    assert 1 == len(routes(world.admit("p", LONG, deadline_at_ms=5.0)))


@pytest.mark.parametrize(
    ("deadline_at_ms", "home"), [(None, None), (4200.0, None), (100.0, "e0")], ids=["no deadline", "in time", "home"]
)
def test_who_waits(world: World, deadline_at_ms: float | None, home: str | None) -> None:
    """A call waits if it has no deadline or one that can be met; one that goes home may not be held at all."""
    holding(world)
    world.load("e1", programs_held=1, expected_wait_ms=4200.0)

    assert 1 == len(routes(world.admit("p", LONG, home, deadline_at_ms=deadline_at_ms)))
