"""The service cores under faults: what must hold does, and each check can fail."""

import argparse
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import CallFinished, Event, Failed, ProgramEnded, ProgramRecord, ProgramStarted
from autellix.services.config import ProcessTableSettings
from autellix.services.process_table.core import ProcessTable
from autellix.services.simulator.faults import command, world
from autellix.services.simulator.faults.checks import SLACK_MS, Outcome, faults_of, is_excused, records_of
from autellix.services.simulator.faults.clients import Attempt
from autellix.services.simulator.faults.invariants import broken_in
from autellix.services.simulator.faults.plan import Fault, plan_of
from autellix.services.simulator.faults.world import FaultWorld, run_plan

FRESH = [random.SystemRandom().randrange(10**9) for _ in range(20)]
FIXED = [1, 31, 57, 89, 114, 166, 192, 605, 944, 3000939, 3002347, 3004930, 4000055, 11002801, 12004040]
"""Some of these found something."""
P = ProgramId("p")
C = CallId("c")
END = Failed(status=503, error=ErrorBody(message="", type="server_error"))
ANSWER = CallFinished(
    call_id=C, program_id=P, thread_id=ThreadId("main"), at_ms=30.0, arrival_at_ms=10.0, service_ms=5.0, wait_ms=1.0
)
HISTORY: Sequence[Event] = (
    ProgramStarted(program_id=P, source="started", at_ms=0.0),
    ANSWER,
    ProgramEnded(program_id=P, at_ms=40.0),
)


def outcome(kept: Sequence[Event] = HISTORY, **fields: Any) -> Outcome:
    """Return what is left of a run in which all went well, but for what is said."""
    table = ProcessTable(ProcessTableSettings())
    for event in HISTORY:
        table.recover(event, 0.0)
    attempt = Attempt("_INBOX.0.call0", 10.0, call_id=C, ends=[END], ended_ms=30.0)
    known = Outcome([attempt], kept, records_of(table), 0, 0, 0, (), frozenset())
    return known._replace(**fields)


def attempt(**fields: Any) -> list[Attempt]:
    """Return one accepted call."""
    return [Attempt("_INBOX.0.call0", 10.0, call_id=C, **fields)]


def with_record(**fields: Any) -> Outcome:
    """Return what is left, with another record in the table."""
    broken = outcome()
    for name, value in fields.items():
        setattr(broken.records[0], name, value)
    return broken


@pytest.mark.parametrize("seed", [*FIXED, *FRESH])
def test_seed(seed: int) -> None:
    """Whatever goes wrong, the promises hold."""
    assert run_plan(plan_of(seed)) == [], f"autellix sim faults --first {seed} --seeds 1"


def test_same_seed_same_run() -> None:
    """A seed can be replayed: it has the same events again."""
    assert FaultWorld(plan_of(5)).run().kept == FaultWorld(plan_of(5)).run().kept


def test_nothing_wrong() -> None:
    """A history in which all went well breaks no rule."""
    assert faults_of(outcome()) == []


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        (lambda: outcome(attempts=attempt()), ["c has no end"]),
        (
            lambda: outcome(attempts=attempt(ends=[END, END], late=1)),
            ["c has 2 ends and 1 frames after the first"],
        ),
        (lambda: outcome(attempts=attempt(ends=[END], ended_ms=21.0 + SLACK_MS)), ["c took 5.0 s"]),
        (lambda: outcome(sessions=1), ["1 sessions are left"]),
        (lambda: outcome(balancer_calls=2), ["the balancer has 2 calls left"]),
        (lambda: outcome(worker_calls=3), ["the engines have 3 calls left"]),
        (lambda: outcome(records=[]), ["p is missing in the table"]),
        (lambda: outcome(strange=["odd"]), ["odd"]),
    ],
)
def test_each_check_can_fail(broken: Callable[[], Outcome], wrong: list[str]) -> None:
    """A history that breaks one rule is said to, and why."""
    assert faults_of(broken()) == wrong


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"service_ms": 10.0}, "p is charged 10.0 ms for 5.0 to 5.0"),
        ({"calls": 2}, "p counts 2 calls, 1 ended"),
        ({"state": "running"}, "p is running"),
        ({"state": "running", "live_calls": 1}, "p has 1 live calls when all is quiet"),
    ],
)
def test_each_account_can_be_wrong(fields: dict[str, Any], wrong: str) -> None:
    """A table that says what the events do not is noticed, by its own rule and by that of the same table."""
    found = faults_of(with_record(**fields))
    assert wrong in found
    assert any(", by the events ProgramRecord" in each for each in found)


def test_a_dead_engine_that_calls_are_sent_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noticed: right after its death the balancer cannot know."""
    monkeypatch.setattr(world, "GONE_MAX_MS", 0.0)
    seeds = (run_plan(plan_of(seed)) for seed in range(30))
    assert any("is sent to engine-" in wrong for found in seeds for wrong in found)


@pytest.mark.parametrize(
    ("breaks", "wrong"),
    [
        (lambda manager, _table, _balancer: manager._sessions.calls_of.update(x=1), "counts {'x': 1} live calls"),
        (lambda manager, _table, _balancer: manager._sessions._owners.update(c="p"), "for the live calls of {}"),
        (lambda _manager, table, _balancer: table._row(P, 0.0).live.update(c=0.0), "p has 0 live calls"),
        (
            lambda _manager, table, _balancer: _charge(table._row(P, 0.0).record, 7.0),
            "a critical path of 7.0 in 0.0 ms",
        ),
        (lambda _manager, _table, balancer: balancer._engine_of.update(c="e0"), "c is on e0, which is not so"),
    ],
)
def test_each_invariant_can_break(breaks: Callable[[Any, Any, Any], None], wrong: str) -> None:
    """What does not hold in a service is told."""
    cores = [service.core for service in FaultWorld(plan_of(1)).services.values()]
    before = [broken for core in cores for broken in broken_in(core)]
    breaks(*cores)

    assert before == []
    assert any(wrong in broken for core in cores for broken in broken_in(core))


def _charge(record: ProgramRecord, critical_path_ms: float) -> None:
    record.source, record.critical_path_ms = "started", critical_path_ms


def test_two_answers() -> None:
    """A call that two engines answered is noticed."""
    again = CallFinished(
        call_id=C, program_id=P, thread_id=ThreadId("main"), at_ms=35.0, arrival_at_ms=10.0, service_ms=5.0, wait_ms=1.0
    )
    assert faults_of(outcome(kept=(*HISTORY, again))) == ["c is answered 2 times"]


@pytest.mark.parametrize(
    ("places", "excused"),
    [
        (["session-manager"], False),
        (["process-table", "load-balancer"], False),
        (["engine-0", "engine-1"], False),
        (["session-manager", "process-table"], True),
        (["load-balancer", "engine-0"], True),
        (["bus"], False),
        (["load-balancer", "bus"], True),
    ],
)
def test_what_is_excused(places: list[str], excused: bool) -> None:  # noqa: FBT001 - a column of the table
    """A call may be lost where architecture.md says so, and nowhere else."""
    (lost,) = attempt()
    faults = [Fault(20.0, "outage" if place == "bus" else "crash", place, 200.0) for place in places]
    assert is_excused(lost, outcome(attempts=[lost], faults=faults)) is excused


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb ends with status 1 if a seed failed, and says how to run that one again."""
    arguments = argparse.Namespace(seeds=2, first=7, programs=3, minutes=0.5)
    good = command.run(arguments)
    monkeypatch.setattr(command, "run_plan", lambda plan: ["odd"] if plan.seed == 8 else [])
    bad = command.run(arguments)

    assert (good, bad) == (0, 1)
    replay = "autellix sim faults --first 8 --seeds 1 --programs 3 --minutes 0.5"
    assert f"seed 8 ({replay}):\n  odd\n" in capsys.readouterr().out
