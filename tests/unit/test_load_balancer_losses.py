"""What the load balancer does with the calls of an engine that is lost, and with one that is not there yet."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import CallRouted, CallStarted, ForgetCalls, RoutedCall
from autellix.services.config import LoadBalancerSettings
from autellix.services.load_balancer.core import ACQUAINTANCE_MS, LATE_MS, LoadBalancer
from tests.unit.test_load_balancer_engines import engines_down, failures

if TYPE_CHECKING:
    from autellix.services.core import Out
    from tests.unit.conftest import World


def runs_again(outs: list[Out]) -> dict[str, str]:
    """Return where calls run from now on, by call."""
    return {out.message.call.call_id: out.message.engine_id for out in outs if isinstance(out.message, RoutedCall)}


def begin(world: World, routed: RoutedCall) -> None:
    """Let a call begin to run."""
    call = routed.call
    event = CallStarted(
        call_id=call.call_id,
        program_id=call.program_id,
        thread_id=call.thread_id,
        at_ms=0.0,
        engine_id=routed.engine_id,
        wait_ms=0.0,
    )
    assert list(world.balancer.handle(event, world.now_ms)) == []


def sent(world: World, engine: str, **fields: Any) -> RoutedCall:
    """Let a call arrive that goes to an engine."""
    (routed, _) = world.admit(f"of-{engine}-{world.calls}", 10_000, home=engine, **fields)
    assert isinstance(routed.message, RoutedCall)
    assert routed.message.engine_id == engine
    return routed.message


def test_calls_of_a_lost_engine_run_elsewhere(world: World) -> None:
    """What its client has heard nothing of runs on another engine; a stream that began ends, and says why."""
    plain, streamed, begun = (sent(world, "e0", stream=stream) for stream in (False, True, True))
    for each in (plain, begun):
        begin(world, each)
    outs = world.down("e0", reason="its engine died")

    assert runs_again(outs) == {plain.call.call_id: "e1", streamed.call.call_id: "e1"}
    reasons = {out.message.reason for out in outs if isinstance(out.message, CallRouted)}
    assert reasons == {"run again (its engine died)"}
    assert [(failed.call_id, failed.error.code) for failed in failures(outs)] == [(begun.call.call_id, "engine_lost")]
    assert world.used() == {"e1": 2}


def test_a_call_runs_elsewhere_once(world: World) -> None:
    """A call that took two engines along is not given a third."""
    world.heard("e2")
    call = sent(world, "e0")
    (second,) = runs_again(world.down("e0")).values()
    outs = world.down(second)

    assert runs_again(outs) == {}
    assert [failed.call_id for failed in failures(outs)] == [call.call.call_id]
    assert [(each.status, each.error.code, each.retry_safe) for each in failures(outs)] == [(503, "engine_lost", False)]


def test_no_other_engine(world: World) -> None:
    """Without another engine that serves the model the call ends with its engine."""
    world.down("e1")
    sent(world, "e0")

    assert [failed.error.code for failed in failures(world.down("e0"))] == ["engine_lost"]


def test_lost_engine_is_told_to_forget(world: World) -> None:
    """Should it live on, it is told not to say anything of its calls any more."""
    call = sent(world, "e0")
    world.tick(4000.0)
    world.load("e1")
    outs = world.tick(8000.0)
    orders = [(out.subject, out.message.call_ids) for out in outs if isinstance(out.message, ForgetCalls)]

    assert orders == [(subjects.engine_forget(EngineId("e0")), (call.call.call_id,))]


def stands_still(world: World, seconds: int, **facts: Any) -> list[Out]:
    """Let time pass in which one engine reports the same step, and the other goes on."""
    outs: list[Out] = []
    for second in range(seconds):
        outs += world.tick(world.now_ms + 1000)
        outs += world.load("e0", calls=1, running=1, steps=7, **facts)
        outs += world.load("e1", calls=0, steps=second)
    return outs


def test_engine_that_stands_still(world: World) -> None:
    """An engine that reports but makes no step with a call to run is out after a while, until it makes one."""
    call = sent(world, "e0")
    early = stands_still(world, 14)
    outs = stands_still(world, 4)
    after = set(world.used())
    world.load("e0", calls=1, running=1, steps=8)

    assert engines_down(early) == []
    assert engines_down(outs) == ["e0"]
    assert runs_again(outs) == {call.call.call_id: "e1"}
    assert after == {"e1"}
    assert set(world.used()) == {"e0", "e1"}


def test_idle_engine_makes_no_steps(world: World) -> None:
    """An engine with nothing to do does not stand still."""
    outs: list[Out] = []
    for _ in range(40):
        outs += world.tick(world.now_ms + 1000)
        outs += world.load("e0", calls=0, steps=7) + world.load("e1", calls=0, steps=7)

    assert engines_down(outs) == []


def test_balancer_that_just_began(make_world: type[World]) -> None:
    """Until it can have heard of every engine, a call that none could take waits to be sent again."""
    balancer = LoadBalancer(LoadBalancerSettings(), random.Random(7), began_at_ms=0.0)
    world = make_world()
    world.balancer = balancer
    early = world.admit()
    world.now_ms = ACQUAINTANCE_MS
    late = world.admit()

    assert early == []
    assert [failed.error.code for failed in failures(late)] == ["no_engine"]


def test_refused_call_that_comes_again(make_world: type[World]) -> None:
    """A call that was refused is over at once: it gets no second end, and does not run on an engine that comes up."""
    world = make_world()
    world.balancer = LoadBalancer(LoadBalancerSettings(), random.Random(7))
    first = world.admit(call_id="c")
    again = world.admit(call_id="c")
    world.up("e0")
    later = world.admit(call_id="c")

    assert [failed.error.code for failed in failures(first)] == ["no_engine"]
    assert (again, later) == ([], [])


@pytest.mark.parametrize("jump_ms", [30_000.0, -30_000.0])
def test_clock_jumps(world: World, jump_ms: float) -> None:
    """A call is not taken for forgotten because the clock was set; when it is, that is noticed in its usual time."""
    for _ in range(4):
        world.route()
    world.tick(world.now_ms + 500.0)
    began_ms = world.now_ms = world.now_ms + jump_ms
    ends: dict[float, int] = {}
    for after_ms in range(0, 12_000, 500):
        world.now_ms = began_ms + after_ms
        outs = [*world.load("e0", calls=0), *world.load("e1", calls=0), *world.balancer.tick(world.now_ms)]
        ends |= {world.now_ms - began_ms: len(failures(outs))} if failures(outs) else {}

    assert {LATE_MS: 4} == ends


def test_call_right_after_the_clock_is_set_back(world: World) -> None:
    """One that is routed before the next tick is as new as it is, however far the clock went."""
    world.tick(500.0)
    world.now_ms = -29_500.0
    world.route()
    world.tick(-29_000.0)
    outs = [*world.load("e0", calls=0), *world.load("e1", calls=0)]

    assert [] == failures(outs)


def test_clock_is_set_back(world: World) -> None:
    """Silence is noticed as soon as ever when the clock was set back meanwhile."""
    world.tick(1000.0)
    world.load("e0")
    world.now_ms = -300_000.0
    down_at_ms: dict[str, float] = {}
    for now_ms in range(-299_500, -290_000, 500):
        world.load("e1")
        down_at_ms |= dict.fromkeys(engines_down(world.tick(float(now_ms))), world.now_ms)

    assert down_at_ms == {"e0": -294_500.0}
    assert set(world.used()) == {"e1"}
