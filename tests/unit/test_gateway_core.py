"""Which engines and models the gateway offers."""

from __future__ import annotations

import msgspec

from autellix.schemas.ids import EngineId, Incarnation
from autellix.schemas.messages import EngineDown, EngineLoad, EngineUp
from autellix.services.gateway.core import EngineRotation

LOAD = EngineLoad(
    engine_id=EngineId("e0"),
    incarnation=Incarnation("i1"),
    models=("b", "a"),
    policy="atlas",
    state="ready",
    slots=4,
    calls=0,
    running=0,
    waiting=0,
    kv_usage=0.0,
    steps=1,
    at_ms=0.0,
)
DOWN = EngineDown(engine_id=EngineId("e0"), incarnation=Incarnation("i1"), reason="drained", at_ms=0.0)


def rotation(*loads: EngineLoad) -> EngineRotation:
    """Return a rotation that heard `loads` at 1000, 1001, ..."""
    core = EngineRotation(silence_s=2)
    for number, load in enumerate(loads):
        core.handle(load, 1000.0 + number)
    return core


def test_nothing_heard() -> None:
    """Without a heartbeat there is no engine and no model."""
    core = EngineRotation(silence_s=2)

    assert core.empty
    assert core.models() == {}


def test_up_is_enough() -> None:
    """An engine is in rotation from its first word."""
    up = EngineUp(
        engine_id=EngineId("e0"),
        incarnation=Incarnation("i1"),
        models=("a",),
        policy="atlas",
        slots=4,
        kv_tokens=1,
        max_model_len=1,
        at_ms=0.0,
    )
    core = EngineRotation(silence_s=2)
    core.handle(up, 5.0)

    assert core.models() == {"a": 5.0}


def test_models_of_several_engines() -> None:
    """A model that several engines serve is named once, with the time it was first seen."""
    other = msgspec.structs.replace(LOAD, engine_id=EngineId("e1"), models=("b", "c"))

    assert rotation(LOAD, other, LOAD).models() == {"a": 1000.0, "b": 1000.0, "c": 1001.0}


def test_draining_engine() -> None:
    """An engine that drains offers nothing."""
    draining = msgspec.structs.replace(LOAD, state="draining")
    core = rotation(LOAD, draining)

    assert core.empty
    assert core.models() == {}


def test_down() -> None:
    """An engine that went down is gone; the end of its former life does not touch a restarted one."""
    restarted = msgspec.structs.replace(LOAD, incarnation=Incarnation("i2"))
    gone, back = rotation(LOAD), rotation(LOAD, restarted)
    gone.handle(DOWN, 2000.0)
    back.handle(DOWN, 2000.0)

    assert gone.empty
    assert not back.empty


def test_silence() -> None:
    """An engine leaves after the silence that is allowed, not before."""
    core = rotation(LOAD)
    core.tick(3000.0)
    in_time = core.empty
    core.tick(3000.1)

    assert not in_time
    assert core.empty
