"""The load balancer: who takes a call, and what counts as load."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import (
    AdmittedCall,
    CallFailed,
    CallRouted,
    EngineList,
    ListEngines,
    ProgramEnded,
    ProgramFacts,
    RoutedCall,
)
from autellix.services.core import Reply
from autellix.services.load_balancer.engine import Sent

if TYPE_CHECKING:
    from tests.unit.conftest import World

LONG = 5000
"""A prompt that looks for its home."""


def test_simultaneous_burst_is_even(world: World) -> None:
    """Calls that arrive at once, before any engine reports, are spread evenly."""
    taken = Counter(world.route(f"p{number}").engine_id for number in range(32))

    assert taken == {"e0": 16, "e1": 16}


def test_idle_ties_are_random(world: World) -> None:
    """Calls one at a time over idle engines do not all go to the first."""
    taken: Counter[str] = Counter()
    for number in range(200):
        routed = world.route(f"p{number}")
        taken[routed.engine_id] += 1
        world.finish(routed)

    assert 70 <= taken["e0"] <= 130


def test_two_balancers(make_world: type[World]) -> None:
    """Balancers that do not know each other spread evenly too."""
    worlds = [make_world().heard("e0", "e1") for _ in range(2)]
    taken = Counter(world.route(f"p{number}").engine_id for world in worlds for number in range(16))

    assert taken == {"e0": 16, "e1": 16}


def test_zero_when_idle(world: World) -> None:
    """Load is the calls that have not ended: ends count once, and unknown ones not at all."""
    calls = [world.route() for _ in range(50)]
    assert sum(world.used().values()) == 50
    for routed in calls:
        world.finish(routed)
        world.finish(routed)

    assert world.used() == {"e0": 0, "e1": 0}


def test_heartbeat_does_not_write_load(world: World) -> None:
    """A heartbeat that does not know of the calls on their way does not make a busy engine look idle."""
    world.down("e1")
    for _ in range(30):
        world.route()
    world.load("e0", calls=0)
    world.load("e1", "i2")
    taken = Counter(world.route(f"new{number}").engine_id for number in range(30))

    assert taken == {"e1": 30}


def test_calls_of_another_balancer_count(world: World) -> None:
    """Calls that an engine has and this balancer did not send count as load until it reports them gone."""
    world.load("e0", calls=20)

    assert {world.route().engine_id for _ in range(10)} == {"e1"}
    world.load("e0", calls=0)
    assert world.used()["e0"] == 0


def test_call_twice(world: World) -> None:
    """A call that comes twice goes to one engine, once, and it is said where; nothing is after its end."""
    routed = world.route()
    (said,) = world.admit(call_id=routed.call.call_id)

    assert isinstance(said.message, CallRouted)
    assert (said.message.call_id, said.message.engine_id) == (routed.call.call_id, routed.engine_id)
    assert not said.message.becomes_home
    world.finish(routed)
    assert world.admit(call_id=routed.call.call_id) == []
    assert world.used() == {"e0": 0, "e1": 0}


def test_algorithm_2(make_world: type[World]) -> None:
    """By the paper's rule a long prompt goes home; without a home, to the least used, which becomes home."""
    world = make_world(policy="autellix").heard("e0", "e1")
    first = world.route("p", LONG)
    busy = world.balancer._engines[first.engine_id].calls
    busy |= {
        CallId(f"x{number}"): Sent(AdmittedCall(call=first.call, program=ProgramFacts()), 0.0) for number in range(20)
    }
    again = world.route("p", LONG)
    short = world.route("p", 2048)
    just_long = world.route("p", 2049)

    assert again.engine_id == just_long.engine_id == first.engine_id
    assert short.engine_id != first.engine_id


@pytest.mark.parametrize(("policy", "expected"), [("home", [True, False, False]), ("autellix", [False, True, False])])
def test_home_is_announced_once(make_world: type[World], policy: str, expected: list[bool]) -> None:
    """The event of the choice that made a home says so, and no other: by the paper's rule a short call makes none."""
    world = make_world(policy=policy).heard("e0", "e1")
    events = [world.admit("p", tokens)[1].message for tokens in (10, LONG, LONG)]

    assert expected == [event.becomes_home for event in events if isinstance(event, CallRouted)]


def test_home_that_the_table_knows(world: World) -> None:
    """A balancer that restarted sends long prompts to the home that the process table remembers."""
    assert {world.route("p", LONG, home="e1").engine_id for _ in range(10)} == {"e1"}


@pytest.mark.parametrize("how", ["down", "draining", "never was"])
def test_home_is_gone(world: World, how: str) -> None:
    """A program whose home cannot take calls gets another one."""
    if how == "down":
        world.down("e1")
    world.load("e1", state="draining")
    home = "e9" if how == "never was" else "e1"
    _, event = world.admit("p", LONG, home)

    assert isinstance(event.message, CallRouted)
    assert (event.message.engine_id, event.message.becomes_home) == ("e0", True)


def test_homes_are_forgotten(world: World) -> None:
    """A program's home is forgotten with the program, and there is a bound for those whose end is not heard."""
    world.route("p", LONG)
    world.balancer.handle(ProgramEnded(program_id=ProgramId("p"), at_ms=0.0), 0.0)
    for number in range(20_100):
        world.finish(world.route(f"late{number}", LONG))

    assert len(world.balancer._homes) == 20_000


def test_other_rules(make_world: type[World]) -> None:
    """Round robin takes turns, and least used knows no homes."""
    turns, least = (make_world(policy=policy).heard("e0", "e1", "e2") for policy in ("round_robin", "least_used"))

    assert [turns.route().engine_id for _ in range(4)] == ["e0", "e1", "e2", "e0"]
    assert sorted(least.route("p", LONG, home="e0").engine_id for _ in range(3)) == ["e0", "e1", "e2"]


def test_list(world: World) -> None:
    """The engines in rotation are listed with their last heartbeat."""
    world.load("e1", state="draining", calls=3)
    (out,) = world.balancer.handle(ListEngines(), 0.0, Reply("_INBOX.1"))

    assert isinstance(out.message, EngineList)
    assert [(load.engine_id, load.state, load.calls) for load in out.message.engines] == [
        ("e0", "ready", 0),
        ("e1", "draining", 3),
    ]


def test_any_model(world: World) -> None:
    """A call that names no model is for whichever engine there is; one that names an unknown model is refused."""
    anywhere, _ = world.admit(model="")
    nowhere, _ = world.admit(model="other")

    assert isinstance(anywhere.message, RoutedCall)
    assert isinstance(nowhere.message, CallFailed)
