"""Subjects: events name themselves, and no name from outside can reach beyond its token."""

import string
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.schemas import subjects
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import EngineDown, Event
from autellix.services.bus import matches

SAFE = string.ascii_letters + string.digits + "_-"


def test_event_subject() -> None:
    """An event is published on the subject that its tag says."""
    event = EngineDown(engine_id=EngineId("e0"), incarnation="i", reason="", at_ms=0.0)  # type: ignore[arg-type]

    assert subjects.event(event) == "autellix.events.engine.down"


def test_kept_events() -> None:
    """The stream keeps every kind of event but the heartbeats, each of them once."""
    tags = {f"autellix.events.{kind.__struct_config__.tag}" for kind in get_args(Event)}
    kept = {tag: sum(matches(pattern, tag) for pattern in subjects.KEPT_EVENTS) for tag in tags}

    heartbeats = {"autellix.events.engine.load", "autellix.events.durable.load"}
    assert {tag for tag, times in kept.items() if times != 1} == heartbeats
    assert set(subjects.CALL_ENDS) < tags


@given(st.text(alphabet=SAFE, min_size=1, max_size=64))
def test_good_names(name: str) -> None:
    """Letters, digits, underscores and hyphens make a subject's token as they are."""
    assert subjects.engine_calls(EngineId(name)) == f"autellix.internal.engines.{name}.calls"
    assert subjects.engine_control(EngineId(name)) == f"autellix.engines.{name}.control"


@pytest.mark.parametrize("name", ["", "a.b", "*", ">", "a b", "e\n", "ü", "a" * 65, "e0\r\nPUB x 0", "\u0665"])
def test_bad_names(name: str) -> None:
    """A name that could mean another subject is refused, its text cut."""
    with pytest.raises(ValueError, match="not a valid name"):
        subjects.engine_calls(EngineId(name))
