"""What is counted of whole programs, in whatever order it is heard."""

from __future__ import annotations

import msgspec

from autellix.schemas.messages import ProgramEnded, ProgramExpired, ProgramStarted
from autellix.services.metrics.programs import ENDING_MAX_MS, SETTLED_MS
from tests.unit.test_metrics_core import P, failed, finished, submitted, told


def test_what_a_program_came_to() -> None:
    """Two calls at once: 1 s waited for each 0.25 s run; 2 s with a call; its critical path is the longer chain."""
    second = msgspec.structs.replace(finished("b"), critical_path_at_arrival_ms=300.0)
    core = told(
        ProgramStarted(program_id=P, at_ms=0.0),
        submitted("a"),
        submitted("b"),
        finished("a"),
        second,
        ProgramEnded(program_id=P, at_ms=5000.0),
    )
    core.tick(SETTLED_MS)

    programs = core.programs
    assert programs.wait_ratio.sums == {"ended": 3.0}
    assert programs.slowdown.sums == {"ended": 2.5}
    assert programs.token_latency.sums == {"ended": 0.5}


def test_program_that_is_over_before_its_calls() -> None:
    """What is heard of its calls after its own end counts, and it is looked at once, when the last one has ended."""
    core = told(ProgramStarted(program_id=P, at_ms=0.0), ProgramEnded(program_id=P, at_ms=2500.0), submitted("a"))
    core.tick(10 * SETTLED_MS)
    before = dict(core.programs.token_latency.sums)
    core.handle(finished("a"), 0.0)
    core.handle(finished("a"), 0.0)
    for _ in range(2):
        core.tick(20 * SETTLED_MS)

    assert before == {}
    assert core.programs.token_latency.by_label["ended"] == [*[0] * 8, 1, *[0] * 5]
    assert core.programs.token_latency.sums == {"ended": 0.5}


def test_expired_program_ended_with_its_last_call() -> None:
    """The time in which nobody knew that it was over is not its users' waiting."""
    core = told(
        ProgramStarted(program_id=P, at_ms=0.0),
        submitted("a"),
        finished("a"),
        ProgramExpired(program_id=P, at_ms=600_000.0),
    )
    core.tick(SETTLED_MS)

    assert core.programs.token_latency.sums == {"expired": 0.6}


def test_program_of_the_same_name() -> None:
    """A call of the program before counts for that one, also when the next one of that name has begun."""
    core = told(ProgramStarted(program_id=P, at_ms=0.0), submitted("a"), ProgramEnded(program_id=P, at_ms=2500.0))
    for event in (ProgramStarted(program_id=P, at_ms=2600.0), submitted("b"), finished("a"), finished("b")):
        core.handle(event, 0.0)
    core.tick(SETTLED_MS)
    first = dict(core.programs.token_latency.sums)
    core.handle(ProgramEnded(program_id=P, at_ms=3600.0), 0.0)
    core.tick(SETTLED_MS)

    assert first == {"ended": 0.5}
    assert {label: round(value, 6) for label, value in core.programs.token_latency.sums.items()} == {"ended": 0.7}


def test_program_whose_calls_are_never_heard_to_end() -> None:
    """It is looked at without them, and not kept for ever."""
    core = told(ProgramStarted(program_id=P, at_ms=0.0), submitted("a"), submitted("lost"), finished("a"))
    core.handle(ProgramEnded(program_id=P, at_ms=5000.0), 0.0)
    core.tick(ENDING_MAX_MS)

    assert core.programs.token_latency.sums == {"ended": 1.0}
    assert core.programs._ending == {}


def test_program_that_nothing_was_done_for() -> None:
    """A program without service has no ratios."""
    core = told(ProgramStarted(program_id=P, at_ms=0.0), submitted("a"), failed("a"))
    core.handle(ProgramEnded(program_id=P, at_ms=5000.0), 0.0)
    core.tick(SETTLED_MS)
    nothing = msgspec.structs.replace(failed("b"), service_ms=0.0, output_tokens=0)
    empty = told(ProgramStarted(program_id=P, at_ms=0.0), submitted("b"), nothing)
    empty.handle(ProgramEnded(program_id=P, at_ms=5000.0), 0.0)
    empty.tick(SETTLED_MS)

    assert core.programs.slowdown.by_label
    assert empty.programs.slowdown.by_label == empty.programs.token_latency.by_label == {}
