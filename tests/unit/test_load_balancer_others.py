"""Several load balancers: each call is repeated and ended by one of them, and all know where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from autellix.schemas import subjects
from autellix.schemas.ids import CallId, EngineId
from autellix.schemas.messages import (
    AdmittedCall,
    CallFailed,
    CallRouted,
    ForgetCalls,
    ReleasedCall,
    RoutedCall,
)
from autellix.services.load_balancer import others
from autellix.services.load_balancer.core import LATE_MS

if TYPE_CHECKING:
    from autellix.services.core import Out
    from tests.unit.conftest import World

LONG = 10_000


class Pair:
    """Two balancers that hear the same engines, and each other."""

    def __init__(self, make_world: type[World]) -> None:
        self.one, self.other = (make_world().heard("e0", "e1") for _ in range(2))

    def pass_time(self, ms: float = 10.0) -> None:
        """Let both have a later time, without a tick."""
        for world in (self.one, self.other):
            world.now_ms += ms

    def tell(self, outs: list[Out]) -> list[Out]:
        """Let both hear where calls went; return what they say to that."""
        events = [out.message for out in outs if isinstance(out.message, CallRouted)]
        worlds = (self.one, self.other)
        return [out for event in events for each in worlds for out in each.balancer.handle(event, each.now_ms)]

    def send(self, to: World, engine: str = "e0") -> tuple[RoutedCall, list[Out]]:
        """Let a call arrive at one of them that goes to an engine; nobody has heard of that yet."""
        outs = to.admit("p", LONG, engine)
        routed = outs[0].message
        assert isinstance(routed, RoutedCall)
        assert routed.engine_id == engine
        return routed, outs

    def again(self, to: World, routed: RoutedCall) -> list[Out]:
        """Let a call arrive at one of them that one of them had."""
        return list(to.balancer.handle(AdmittedCall(call=routed.call, program=routed.program), to.now_ms))

    def release(self, to: World, routed: RoutedCall) -> list[Out]:
        """Let a call arrive at one of them that its engine gave back."""
        released = ReleasedCall(call=routed.call, program=routed.program, engine_id=routed.engine_id)
        return list(to.balancer.handle(released, to.now_ms))


@pytest.fixture
def pair(make_world: type[World]) -> Pair:
    """Return two balancers."""
    return Pair(make_world)


def engines(outs: list[Out]) -> list[str]:
    """Return the engines that calls go to."""
    return [out.message.engine_id for out in outs if isinstance(out.message, RoutedCall)]


def calls(outs: list[Out]) -> list[str]:
    """Return the calls that go to engines."""
    return [out.message.call.call_id for out in outs if isinstance(out.message, RoutedCall)]


def test_own_word_comes_back(pair: Pair) -> None:
    """A balancer that hears itself learns nothing from it."""
    routed, outs = pair.send(pair.one)

    assert pair.tell(outs) == []
    assert pair.one.used() == {"e0": 1, "e1": 0}
    assert list(pair.one.balancer._engines[EngineId("e0")].calls) == [routed.call.call_id]


def test_passed_on_again(pair: Pair) -> None:
    """A call that is passed on once more and reaches the other balancer stays where it is."""
    routed, outs = pair.send(pair.one)
    pair.tell(outs)
    (again,) = pair.again(pair.other, routed)

    assert isinstance(again.message, CallRouted)
    assert again.message.engine_id == "e0"
    assert pair.tell([again]) == []
    assert pair.one.used() == {"e0": 1, "e1": 0}


def test_given_back_to_the_other(pair: Pair) -> None:
    """What an engine gives back to the other balancer is that one's: the first neither repeats nor ends it."""
    routed, outs = pair.send(pair.one)
    pair.tell(outs)
    pair.pass_time()
    moved = pair.release(pair.other, routed)
    pair.tell(moved)
    assert engines(moved) == ["e1"]

    pair.pass_time(LATE_MS + 1)
    ends = pair.one.load("e0", calls=0)
    assert [out.message for out in ends if isinstance(out.message, CallFailed)] == []
    assert engines(pair.one.down("e0")) == []
    assert engines(pair.one.down("e1")) == []
    assert engines(pair.other.down("e1")) == ["e0"]


def test_lost_engine(pair: Pair) -> None:
    """The calls of a lost engine are repeated by who sent them, and by nobody else."""
    first, outs = pair.send(pair.one)
    pair.other.calls = 10  # ids of its own
    second, more = pair.send(pair.other)
    pair.tell([*outs, *more])
    pair.pass_time()
    again = [pair.one.down("e0"), pair.other.down("e0")]

    assert [engines(each) for each in again] == [["e1"], ["e1"]]
    assert pair.tell([out for each in again for out in each]) == []
    assert [calls(each) for each in again] == [[first.call.call_id], [second.call.call_id]]


def test_sent_by_both(pair: Pair) -> None:
    """If neither had heard of the other, the later one has it, and the engine of the first forgets it."""
    routed, outs = pair.send(pair.one)
    pair.pass_time()
    pair.other.load("e0", state="draining")
    later = pair.again(pair.other, routed)
    assert engines(later) == ["e1"]
    (order,) = pair.tell([*later, *outs])

    assert order.subject == subjects.engine_forget(EngineId("e0"))
    assert isinstance(order.message, ForgetCalls)
    assert order.message.call_ids == (routed.call.call_id,)
    assert pair.one.used() == {"e0": 0, "e1": 0}
    assert pair.other.used() == {"e0": 0, "e1": 1}


def test_sender_died(pair: Pair) -> None:
    """What the other balancer sent to an engine that is gone is sent anew, should it be passed on again."""
    routed, outs = pair.send(pair.one)
    pair.tell(outs)
    pair.other.down("e0")

    assert engines(pair.again(pair.other, routed)) == ["e1"]


def test_home_that_another_chose(pair: Pair) -> None:
    """The latest home holds, whoever chose it: the process table tells it."""
    routed, outs = pair.send(pair.one, "e0")
    pair.one.balancer._homes.choose(routed.call.program_id, "m", EngineId("e0"))
    event = next(out.message for out in outs if isinstance(out.message, CallRouted))
    moved = replace(event, call_id=CallId("elsewhere"), engine_id=EngineId("e1"), becomes_home=True)
    pair.one.balancer.handle(moved, pair.one.now_ms)

    assert engines(pair.one.admit("p", LONG, "e1")) == ["e1"]


def test_nothing_is_left(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its end a call is forgotten, also if its route is heard later; of others there is a bound."""
    monkeypatch.setattr(others, "CALLS_REMEMBERED", 3)
    routed, outs = pair.send(pair.one)
    pair.tell(outs)
    for world in (pair.one, pair.other):
        world.finish(routed)
    pair.tell(outs)
    assert len(pair.other.balancer._others._engine_of) == 0

    for number in range(5):
        pair.one.calls = 100 + number
        pair.tell(pair.send(pair.one)[1])
    assert len(pair.other.balancer._others._engine_of) == 3
