"""How events become numbers."""

from __future__ import annotations

import msgspec
import pytest

from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import (
    CallCancelled,
    CallFailed,
    CallFinished,
    CallSubmitted,
    EngineDown,
    EngineLoad,
    Event,
    ProgramEnded,
    ProgramExpired,
    ProgramStarted,
)
from autellix.services.bus import matches
from autellix.services.metrics import core as rules
from autellix.services.metrics.core import MetricsCore
from autellix.services.metrics.listens import LISTENS
from autellix.services.metrics.numbers import LABELS_MAX, Begun, Counter, Histogram, Live

P, Q = ProgramId("p"), ProgramId("q")
LOAD = EngineLoad(
    engine_id=EngineId("e0"),
    incarnation=Incarnation("i1"),
    models=("tiny",),
    policy="atlas",
    state="ready",
    slots=4,
    calls=0,
    running=3,
    waiting=2,
    kv_usage=0.5,
    steps=7,
    at_ms=0.0,
)


def told(*events: Event) -> MetricsCore:
    """Return a core that heard `events`, at 0."""
    core = MetricsCore(silence_s=2)
    for event in events:
        core.handle(event, 0.0)
    return core


def submitted(call_id: str) -> CallSubmitted:
    """Return the begin of a call, at 1000."""
    return CallSubmitted(
        call_id=CallId(call_id),
        program_id=P,
        thread_id=ThreadId("main"),
        at_ms=1000.0,
        api="/v1/completions",
        model="tiny",
    )


def finished(call_id: str, engine_id: str | None = "e0") -> CallFinished:
    """Return the end of a call, at 3000."""
    return CallFinished(
        call_id=CallId(call_id),
        program_id=P,
        thread_id=ThreadId("main"),
        at_ms=3000.0,
        arrival_at_ms=1000.0,
        engine_id=EngineId(engine_id) if engine_id else None,
        service_ms=500.0,
        wait_ms=1500.0,
        prompt_tokens=10,
        cached_tokens=4,
        output_tokens=5,
        preemptions=1,
    )


def failed(call_id: str) -> CallFailed:
    """Return the end of a call that no engine took."""
    error = ErrorBody(message="m", type="t")
    return CallFailed(**msgspec.structs.asdict(finished(call_id, None)), status=503, error=error)


def cancelled(call_id: str) -> CallCancelled:
    """Return the end of a call that was cancelled before an engine had it."""
    return CallCancelled(**msgspec.structs.asdict(finished(call_id, None)))


def test_programs() -> None:
    """Programs are counted by how they end, those that run are live, and each end is counted once."""
    core = told(
        ProgramStarted(program_id=P, at_ms=0.0),
        ProgramStarted(program_id=Q, at_ms=0.0),
        ProgramStarted(program_id=ProgramId("r"), at_ms=0.0),
        ProgramEnded(program_id=P, at_ms=2000.0),
        ProgramEnded(program_id=P, at_ms=2000.0),
        ProgramExpired(program_id=Q, at_ms=4000.0),
    )

    programs = core.programs
    assert (sum(programs.by_source.by_label.values()), programs.ended_count, programs.expired_count) == (3, 1, 1)
    assert len(programs.live) == 1
    assert programs.duration.sums == {"ended": 2.0, "expired": 4.0}


def test_events_that_are_heard_again() -> None:
    """After the bus was away what is kept is taken in again, most of it known: that changes nothing."""
    history = (
        ProgramStarted(program_id=P, at_ms=0.0),
        submitted("a"),
        finished("a"),
        submitted("b"),
        ProgramEnded(program_id=P, at_ms=4000.0),
        ProgramStarted(program_id=P, at_ms=5000.0),
    )
    core = told(*history, *history)

    assert (core.calls_submitted, len(core.calls_live), core.calls_finished.by_label) == (2, 1, {"e0": 1})
    assert (core.programs.by_source.by_label, core.programs.ended_count, len(core.programs.live)) == ({"": 2}, 1, 1)
    assert core.call_duration.by_label["e0"] == told(*history).call_duration.by_label["e0"]


def test_finished_call() -> None:
    """A finished call adds its tokens, preemptions and times to its engine's numbers."""
    core = told(submitted("a"), finished("a"))

    assert core.calls_finished.by_label == {"e0": 1}
    assert core.prompt_tokens.by_label == {"e0": 10}
    assert core.cached_tokens.by_label == {"e0": 4}
    assert core.output_tokens.by_label == {"e0": 5}
    assert core.preemptions.by_label == {"e0": 1}
    assert core.call_service.sums == {"e0": 0.5}
    assert core.call_wait.sums == {"e0": 1.5}
    assert core.call_duration.sums == {"e0": 2.0}


def test_calls_add_up() -> None:
    """Submitted calls are those that ended, each counted once, and those in flight; ends of unknown calls are none."""
    core = told(
        *(submitted(call_id) for call_id in "abcde"),
        finished("a"),
        finished("a"),
        failed("b"),
        cancelled("c"),
        finished("never heard of"),
    )

    assert core.calls_submitted == 5
    assert core.calls_finished.by_label == {"e0": 1}
    assert core.calls_failed.by_label == {rules.NO_ENGINE: 1}
    assert core.calls_cancelled.by_label == {rules.NO_ENGINE: 1}
    assert list(core.call_service.by_label) == ["e0"]
    assert len(core.calls_live) == 2


def test_idle_is_zero() -> None:
    """A call whose end was lost is not in flight for ever."""
    core = told(submitted("a"), submitted("b"), finished("a"))
    core.tick(1000.0 + rules.CALL_AGE_MAX_MS)
    in_time = len(core.calls_live)
    core.tick(1001.0 + rules.CALL_AGE_MAX_MS)

    assert in_time == 1
    assert len(core.calls_live) == 0


def test_engines() -> None:
    """An engine is up while it reports, shown a while longer, and gone when it says so."""
    core = told(LOAD)
    up = [len(core.reporting(now_ms)) for now_ms in (0.0, 2000.0, 2001.0)]
    shown = list(core.engines)
    core.tick(rules.FORGET_MS + 1)

    assert up == [1, 1, 0]
    assert shown == ["e0"]
    assert core.engines == {}


def test_engine_down() -> None:
    """The end of an engine's former life does not hide the restarted one."""
    restarted = msgspec.structs.replace(LOAD, incarnation=Incarnation("i2"))
    old = EngineDown(engine_id=EngineId("e0"), incarnation=Incarnation("i1"), reason="", at_ms=0.0)

    assert list(told(LOAD, old).engines) == []
    assert list(told(LOAD, restarted, old).engines) == ["e0"]


def test_labels_are_bounded() -> None:
    """Engine ids beyond the limit are counted together."""
    counter = Counter()
    for number in range(LABELS_MAX + 50):
        counter.add(f"e{number}")
    counter.add("e0")

    assert len(counter.by_label) == LABELS_MAX + 1
    assert counter.by_label["other"] == 50
    assert counter.by_label["e0"] == 2


def test_histogram() -> None:
    """A duration on a bound belongs below it; one that clocks made negative is 0."""
    histogram = Histogram((0.1, 1.0))
    for duration_ms in (-5.0, 100.0, 100.1, 1000.0, 1000.1):
        histogram.observe_ms("e0", duration_ms)

    assert histogram.by_label == {"e0": [2, 2, 1]}
    assert round(histogram.sums["e0"], 6) == 2.2002


def test_live_is_bounded() -> None:
    """Beyond the bound the oldest id is forgotten, and an id that is not known ends as nothing."""
    live = Live[Begun](count_max=2, age_max_ms=1.0)
    for number in range(3):
        live.begin(str(number), Begun(float(number)))

    assert len(live) == 2
    assert [live.end("0", 3.0), live.end("2", 3.0), live.end("2", 4.0)] == [None, Begun(2.0), None]


BEGINNINGS = {
    "program.started": ["program.ended", "program.expired"],
    "call.submitted": ["call.finished", "call.failed", "call.cancelled"],
}
ENDS = [end for ends in BEGINNINGS.values() for end in ends]


def heard(tag: str) -> list[int]:
    """Return which subscriptions an event arrives by."""
    return [number for number, listen in enumerate(LISTENS) if matches(listen.subject, f"autellix.events.{tag}")]


@pytest.mark.parametrize("tag", [*BEGINNINGS, *ENDS, "engine.load", "engine.down"])
def test_what_is_counted_is_heard_once(tag: str) -> None:
    """Every event that makes a number arrives, and by one subscription only."""
    assert 1 == len(heard(tag))


@pytest.mark.parametrize(("begun", "ended"), [(begun, end) for begun, ends in BEGINNINGS.items() for end in ends])
def test_causes_are_heard_before_effects(begun: str, ended: str) -> None:
    """Of what has arrived together the beginning is handled first, else its end would not count."""
    assert heard(begun) <= heard(ended)
