"""The load balancer when engines come, drain, fall silent, restart and go: every call ends once, no count drifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.schemas.messages import CallFailed, EngineDown, Failed, RoutedCall
from autellix.services.load_balancer.core import LATE_MS

if TYPE_CHECKING:
    from autellix.services.core import Out
    from tests.unit.conftest import World


def failures(outs: list[Out]) -> list[Failed]:
    """Return the failures told to clients, each of which must come right after its event."""
    events = [out.message for out in outs if isinstance(out.message, CallFailed)]
    frames = [out.message for out in outs if isinstance(out.message, Failed)]
    assert [event.call_id for event in events] == [frame.call_id for frame in frames]
    return frames


def engines_down(outs: list[Out]) -> list[str]:
    """Return the engines that are said to be down."""
    return [out.message.engine_id for out in outs if isinstance(out.message, EngineDown)]


def test_no_engine(make_world: type[World]) -> None:
    """Without any engine a call fails at once as safe to retry later: its event first, then the frame."""
    event, frame = make_world().admit()

    assert isinstance(event.message, CallFailed)
    assert isinstance(frame.message, Failed)
    assert (frame.subject, frame.message.status, frame.message.error.code) == ("_INBOX.1", 503, "no_engine")
    assert frame.message.retry_safe
    assert frame.message.retry_after_s


def test_unknown_model(world: World) -> None:
    """A model that no engine serves is a 404 in the OpenAI shape, its name cut."""
    (failed,) = failures(world.admit(model="x" * 5000))

    assert (failed.status, failed.error.code, failed.error.param) == (404, "model_not_found", "model")
    assert len(failed.error.message) < 300
    assert not failed.retry_safe


def test_client_that_spoke_json(make_world: type[World]) -> None:
    """A failure is told in the encoding that the client speaks."""
    _, frame = make_world().admit(reply_json=True)

    assert frame.as_json


def test_models_are_told_apart(world: World) -> None:
    """A call goes to an engine that serves its model, however busy."""
    world.load("e2", models=("other",), calls=100)
    routed = world.admit(model="other")[0].message

    assert isinstance(routed, RoutedCall)
    assert routed.engine_id == "e2"


def test_draining(world: World) -> None:
    """A draining engine takes nothing new and keeps its calls; when all drain, calls fail as safe to retry."""
    kept = [world.route() for _ in range(4)]
    world.load("e0", state="draining")
    assert {world.route().engine_id for _ in range(10)} == {"e1"}
    world.load("e1", state="draining")
    (failed,) = failures(world.admit())
    world.load("e0")

    assert (failed.status, failed.retry_safe) == (503, True)
    assert world.route().engine_id == "e0"
    assert all(world.balancer._engine_of[routed.call.call_id] for routed in kept)


def test_silent_engine_leaves(world: World) -> None:
    """An engine without a heartbeat for the set time is said to be down, once, and its calls run elsewhere."""
    lost = [routed for routed in (world.route(f"p{n}") for n in range(10)) if routed.engine_id == "e0"]
    world.tick(4000)
    world.load("e1")
    outs = world.tick(9000)

    assert engines_down(outs) == ["e0"]
    assert [out.message.call for out in outs if isinstance(out.message, RoutedCall)] == [each.call for each in lost]
    assert failures(outs) == []
    assert world.used() == {"e1": 10}


def test_late_reports_are_no_silence(make_world: type[World]) -> None:
    """Until an engine is taken for silent it takes calls, by this balancer's own count of them, be it the only one."""
    world = make_world().heard("e0")
    outs = [out for half_s in range(10) for out in world.tick(500.0 * half_s)]
    taken = {world.route(f"p{number}").engine_id for number in range(10)}

    assert (outs, taken, world.used()) == ([], {"e0"}, {"e0": 10})
    assert engines_down([*world.tick(5000.0), *world.tick(5500.0)]) == ["e0"]


def test_silent_engine_comes_back(world: World) -> None:
    """An engine that is heard again is in rotation again."""
    world.tick(20_000)
    assert world.used() == {}
    world.load("e0", calls=3)

    assert world.used() == {"e0": 3}


def test_balancer_that_was_held_up(world: World) -> None:
    """Time in which the balancer itself stood still is no engine's silence."""
    world.tick(1000)
    world.now_ms = 60_000

    assert list(world.balancer.tick(world.now_ms)) == []
    assert engines_down(world.tick(64_000)) == []
    assert sorted(engines_down(world.tick(70_000))) == ["e0", "e1"]


def test_silence_is_judged_by_each(world: World) -> None:
    """That another balancer found an engine silent does not take it from this one, which hears it."""
    assert world.down("e0", reason="silent") == []
    assert set(world.used()) == {"e0", "e1"}


def test_restarted_engine(world: World) -> None:
    """The calls of an engine's earlier life fail once; what is late of that life does not touch the new one."""
    calls = [world.route() for _ in range(20)]
    world.now_ms = 100.0
    outs = world.up("e0", "i2")
    again = [*world.load("e0", "i2"), *world.up("e0", "i2"), *world.down("e0", "i1")]
    for routed in calls:
        world.finish(routed)

    assert [failed.call_id for failed in failures(outs)] == [c.call.call_id for c in calls if c.engine_id == "e0"]
    assert again == []
    assert world.used() == {"e0": 0, "e1": 0}


def test_spread_after_a_restart(world: World) -> None:
    """A restarted engine is worth as much as any other idle one."""
    calls = [world.route() for _ in range(20)]
    world.up("e0", "i2")
    for routed in calls:
        world.finish(routed)
    taken = [world.route(f"p{number}").engine_id for number in range(40)]

    assert taken.count(taken[0]) == 20


def test_late_heartbeat_of_an_earlier_life(world: World) -> None:
    """A heartbeat that was sent before the restart and arrives after it does not bring the old life back."""
    world.now_ms = 100.0
    world.up("e0", "i2")
    routed = [world.route(f"p{number}") for number in range(4)]

    assert world.load("e0", "i1", at_ms=50.0) == []
    assert {each.incarnation for each in routed if each.engine_id == "e0"} == {"i2"}
    assert world.used() == {"e0": 2, "e1": 2}


def test_down_by_its_own_word(world: World) -> None:
    """An engine that says it stopped is gone at once, and saying it twice is harmless."""
    for number in range(4):
        world.route(f"p{number}")
    world.down("e0")

    assert world.used() == {"e1": 4}
    assert world.down("e0") == []
    assert world.used() == {"e1": 4}


EVENTS: dict[str, Callable[[World, int, str], list[Out]]] = {
    "route": lambda world, number, _life: world.admit(f"p{number}"),
    "long": lambda world, number, _life: world.admit(f"p{number}", 5000),
    "load": lambda world, number, life: world.load(f"e{number}", life),
    "busy": lambda world, number, life: world.load(f"e{number}", life, calls=7),
    "drain": lambda world, number, life: world.load(f"e{number}", life, state="draining"),
    "up": lambda world, number, life: world.up(f"e{number}", life),
    "down": lambda world, number, life: world.down(f"e{number}", life),
    "wait": lambda world, number, _life: world.tick(world.now_ms + 1000 * number),
}
steps = st.tuples(st.sampled_from([*EVENTS, "finish"]), st.integers(0, 3), st.sampled_from(["i1", "i2", "i3"]))


@given(st.lists(steps, max_size=60))
def test_no_count_drifts(make_world: type[World], story: list[tuple[str, int, str]]) -> None:
    """Whatever happens, loads are never negative, each call ends at most once, and an idle system shows zero."""
    world = make_world().heard("e0", "e1")
    live: dict[str, RoutedCall] = {}
    failed: list[str | None] = []
    for step, number, life in story:
        if step == "finish":
            if live:
                world.finish(live.pop(list(live)[number % len(live)]))
            continue
        outs = EVENTS[step](world, number, life)
        live |= {out.message.call.call_id: out.message for out in outs if isinstance(out.message, RoutedCall)}
        failed += [frame.call_id for frame in failures(outs)]
        live = {call_id: routed for call_id, routed in live.items() if call_id not in failed}

        assert min(world.used().values(), default=0) >= 0
        assert set(world.balancer._engine_of) == set(live)
    for routed in live.values():
        world.finish(routed)

    assert len(failed) == len(set(failed))
    assert sum(len(engine.calls) for engine in world.balancer._engines.values()) == 0
    assert world.balancer._engine_of == {}


def live(world: World, engine: str, until_ms: float) -> None:
    """Let time pass in which an engine works, and says nothing of its calls."""
    while world.now_ms < until_ms:
        world.tick(min(world.now_ms + 1000, until_ms))
        world.load(engine, calls=1, steps=int(world.now_ms))


def test_lost_ends(world: World) -> None:
    """Calls that their engine has no more, long after they came, are over: no load, and each ends in a failure."""
    world.down("e1")
    forgotten, early, late = world.route(), world.route(), world.route()
    live(world, "e0", LATE_MS + 1)
    fresh = world.route()
    world.finish(late)
    oldest_at_ms = fresh.call.arrival_at_ms
    outs = world.load("e0", calls=1, oldest_call_at_ms=oldest_at_ms)
    failed = [out.message.call_id for out in outs if isinstance(out.message, CallFailed)]

    assert failed == [forgotten.call.call_id, early.call.call_id]
    assert world.used() == {"e0": 1}


@pytest.mark.parametrize("load", [{"calls": 0}, {"calls": 1, "oldest_call_at_ms": 0.0}, {"calls": 1}])
def test_calls_that_may_be_on_their_way(world: World, load: dict[str, Any]) -> None:
    """A call is not over because a heartbeat does not know of it yet, or as long as the engine has one as old."""
    world.down("e1")
    world.route()
    live(world, "e0", 2 * LATE_MS if load["calls"] else LATE_MS)

    assert world.load("e0", **load) == []
    assert world.used() == {"e0": 1}
