"""The text chart of who waited and who was executed."""

from typing import Any

from autellix.client.timeline import Timeline
from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId
from autellix.schemas.messages import CallFinished, CallPreempted, CallResumed, CallStarted, CallSubmitted

P = ProgramId("p")


def ids(call: str, thread: str, at_ms: float, program: ProgramId = P) -> dict[str, Any]:
    """Return what every event of a call names."""
    return {"call_id": CallId(call), "program_id": program, "thread_id": ThreadId(thread), "at_ms": at_ms}


def call(timeline: Timeline, name: str, thread: str, *times_ms: float, program: ProgramId = P) -> None:
    """Add the events of one call that was submitted, started and finished at these times."""
    submitted, started, finished = times_ms
    timeline.add(CallFinished(**ids(name, thread, finished, program), arrival_at_ms=submitted))
    timeline.add(CallStarted(**ids(name, thread, started, program), engine_id=EngineId("e"), wait_ms=0))
    timeline.add(CallSubmitted(**ids(name, thread, submitted, program), api="/v1", model="m"))


def test_call_waits_then_is_executed() -> None:
    """A call is dots until it starts and hashes until it ends, in whatever order its events come."""
    timeline = Timeline()
    call(timeline, "a", "main", 0, 40, 100)

    assert timeline.rows(P, 10) == [("main", "....######")]


def test_displaced_call_is_shown() -> None:
    """From its preemption a call is colons until it is resumed, or ends, in whatever order the events come."""
    timeline, engine = Timeline(), EngineId("e")
    call(timeline, "a", "main", 0, 10, 100)
    timeline.add(CallResumed(**ids("a", "main", 50), engine_id=engine))
    for at_ms in (80, 30):
        timeline.add(CallPreempted(**ids("a", "main", at_ms), engine_id=engine))

    assert timeline.rows(P, 10) == [("main", ".##::###::")]


def test_time_between_calls_is_blank() -> None:
    """A thread without a live call shows nothing: its program is interrupted."""
    timeline = Timeline()
    call(timeline, "a", "main", 0, 0, 30)
    call(timeline, "b", "main", 70, 80, 100)

    assert timeline.rows(P, 10) == [("main", "###    .##")]


def test_threads_have_rows_on_one_scale() -> None:
    """Threads and programs share the scale, from the first submission to the last end."""
    timeline, other = Timeline(), ProgramId("q")
    call(timeline, "a", "main", 0, 0, 50)
    call(timeline, "b", "t2", 50, 50, 100)
    call(timeline, "c", "main", 50, 50, 200, program=other)

    assert timeline.rows(P, 4) == [("main", "#   "), ("t2", " #  ")]
    assert timeline.rows(other, 4) == [("main", " ###")]
    assert timeline.column_s(4) == 0.05


def test_short_call_still_shows() -> None:
    """A call shorter than a column is not lost."""
    timeline = Timeline()
    call(timeline, "a", "main", 0, 0, 100)
    call(timeline, "b", "t2", 51, 51, 52)

    assert timeline.rows(P, 4)[1] == ("t2", "  # ")


def test_no_calls_no_rows() -> None:
    """A program that made no calls has no rows, and an empty timeline a scale all the same."""
    assert Timeline().rows(P, 4) == []
