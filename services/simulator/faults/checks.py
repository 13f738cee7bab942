"""What must hold, whatever goes wrong: each check returns what is wrong, in sentences, and nothing when all is well."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf, isclose
from typing import NamedTuple

from autellix.schemas.identity import BEGUN, NOBODY
from autellix.schemas.messages import (
    CallCancelled,
    CallEnd,
    CallFailed,
    CallFinished,
    Event,
    ProgramRecord,
    ProgramStarted,
)
from autellix.services.config import ProcessTableSettings
from autellix.services.process_table.core import ProcessTable
from autellix.services.simulator.faults.clients import Attempt
from autellix.services.simulator.faults.plan import Fault

SETTLE_MS = 30_000.0
"""How long after a fault its effects may come: a call passed on again, an engine that fell silent."""

OVERTAKEN_MS = 1000.0
"""Twice the longest that a message is under way, and more."""
SLACK_MS = 5000.0
"""What a call's messages take on their way, six hops of 0.4 s, and more."""


class Outcome(NamedTuple):
    """What a run left."""

    attempts: Sequence[Attempt]
    kept: Sequence[Event]
    records: Sequence[ProgramRecord]
    """Of the process table."""
    sessions: int
    """That the session manager still has."""
    balancer_calls: int
    worker_calls: int
    faults: Sequence[Fault]
    lost_inboxes: frozenset[str]
    strange: Sequence[str] = ()
    """What was noticed while it ran."""


def faults_of(outcome: Outcome) -> list[str]:
    """Return everything that does not hold."""
    checks = (one_end, one_answer, bounded_wait, accounts, same_table, nothing_left)
    return [*outcome.strange, *(wrong for check in checks for wrong in check(outcome))]


def is_excused(attempt: Attempt, outcome: Outcome) -> bool:
    """Tell whether the design lets the end of a call be lost: architecture.md, "Not yet".

    That is: frames under way when the bus goes; a call whose session manager and another service on its way die; and
    one whose balancer and engine die, or stand still, in its life. A jump of the wall clock is an engine's silence, and
    so is a bus that is away.
    """
    until_ms = attempt.ended_ms or inf
    met = [
        fault
        for fault in outcome.faults
        if fault.at_ms <= until_ms and fault.at_ms + fault.for_ms >= attempt.at_ms - SETTLE_MS
    ]
    if attempt.inbox in outcome.lost_inboxes:
        return True
    places = {fault.place for fault in met}
    engines = any(place.startswith("engine") for place in places) or not places.isdisjoint(("clock", "bus"))
    manager, table, balancer = (name in places for name in ("session-manager", "process-table", "load-balancer"))
    return (manager and (table or balancer or engines)) or (balancer and engines)


def one_end(outcome: Outcome) -> Iterator[str]:
    """Every accepted call whose client stays gets one terminal frame, and nothing after it.

    When an engine dies right after an end and its next life is heard of first, on another subject, the balancer says
    another end, and clients pass over it (`FrameOrder`). That takes delays that a NATS server does not have: it is none
    of what is wrong.
    """
    for attempt in outcome.attempts:
        if not attempt.call_id or attempt.left:
            continue
        if not attempt.ends and not is_excused(attempt, outcome):
            yield f"{attempt.call_id} has no end"
        if (len(attempt.ends) > 1 or attempt.late) and not _may_end_twice(attempt, outcome):
            yield f"{attempt.call_id} has {len(attempt.ends)} ends and {attempt.late} frames after the first"


def _may_end_twice(attempt: Attempt, outcome: Outcome) -> bool:
    deaths = [fault for fault in outcome.faults if fault.kind == "crash" and fault.place.startswith("engine")]
    return any(abs(each.at_ms - attempt.ended_ms) < OVERTAKEN_MS for each in deaths)


def one_answer(outcome: Outcome) -> Iterator[str]:
    """No call is answered twice."""
    answers: dict[str, set[float]] = defaultdict(set)
    for event in outcome.kept:
        if isinstance(event, CallFinished):
            answers[event.call_id].add(event.at_ms)
    yield from (f"{call_id} is answered {len(times)} times" for call_id, times in answers.items() if len(times) > 1)


def bounded_wait(outcome: Outcome) -> Iterator[str]:
    """No call takes longer than all the work that was done, twice, since a call runs again once, and the faults."""
    work_ms = sum(event.service_ms for event in outcome.kept if isinstance(event, CallFinished | CallFailed))
    most_ms = 2 * work_ms + SLACK_MS + sum(fault.for_ms + SETTLE_MS for fault in outcome.faults)
    for attempt in outcome.attempts:
        took_ms = attempt.ended_ms - attempt.at_ms
        if attempt.ends and not attempt.left and took_ms > most_ms and not is_excused(attempt, outcome):
            yield f"{attempt.call_id} took {took_ms / 1000:.1f} s"


def ends_of(kept: Iterable[Event]) -> dict[str, dict[str, list[CallEnd]]]:
    """Return the ends of each program's calls, by program and call."""
    ends: dict[str, dict[str, list[CallEnd]]] = defaultdict(lambda: defaultdict(list))
    for event in kept:
        if isinstance(event, CallFinished | CallFailed | CallCancelled):
            ends[event.program_id][event.call_id].append(event)
    return ends


def begun_of(kept: Iterable[Event]) -> Counter[str]:
    """Return how often each program began."""
    return Counter(event.program_id for event in kept if isinstance(event, ProgramStarted))


def accounts(outcome: Outcome) -> Iterator[str]:
    """A program's service is that of its ended calls, each charged once; when all is quiet none is live.

    Of a call with two ends, as one that was given up and turned up later, either may be the one that is charged: which
    of two subjects is heard first is not promised. A named session that begins anew is passed over, for the same
    reason: the last end of its life before may be heard after it began.
    """
    ends = ends_of(outcome.kept)
    begun = begun_of(outcome.kept)
    for record in outcome.records:
        calls = ends[record.program_id]
        least = sum(min(end.service_ms for end in each) for each in calls.values())
        most = sum(max(end.service_ms for end in each) for each in calls.values())
        if record.live_calls:
            yield f"{record.program_id} has {record.live_calls} live calls when all is quiet"
        if begun[record.program_id] > 1:
            continue
        if not least - 1e-6 <= record.service_ms <= most + 1e-6:
            yield f"{record.program_id} is charged {record.service_ms} ms for {least} to {most}"
        if record.calls != len(calls):
            yield f"{record.program_id} counts {record.calls} calls, {len(calls)} ended"


def same_table(outcome: Outcome) -> Iterator[str]:
    """The table equals one that hears all events in order.

    Calls with two ends, and sessions that began anew, are passed over for the reason that `accounts` gives.
    """
    fresh = ProcessTable(ProcessTableSettings())
    for event in outcome.kept:
        fresh.recover(event, event.at_ms)
    expected = {record.program_id: record for record in records_of(fresh)}
    ends = ends_of(outcome.kept)
    passed = {program for program, calls in ends.items() if any(len(each) > 1 for each in calls.values())}
    passed |= {program for program, times in begun_of(outcome.kept).items() if times > 1}
    for record in outcome.records:
        other = expected.pop(record.program_id, None)
        if other is None:
            yield f"{record.program_id} is in no event"
        elif record.program_id not in passed and not (
            (record.state, record.calls, record.live_calls) == (other.state, other.calls, other.live_calls)
            and isclose(record.service_ms, other.service_ms, abs_tol=1e-6)
            and isclose(record.waiting_ms, other.waiting_ms, abs_tol=1e-6)
        ):
            yield f"{record.program_id} is {record}, by the events {other}"
    yield from (f"{program_id} is missing in the table" for program_id in expected)


def records_of(table: ProcessTable) -> list[ProgramRecord]:
    """Return what a process table knows."""
    return [row.record for row in table._rows.values()]  # noqa: SLF001 - its answers leave out some


def nothing_left(outcome: Outcome) -> Iterator[str]:
    """No program is stuck, and nobody has a call any more.

    The end of a named session that is stamped earlier than its start, since the wall clock was set back, is taken for
    that of an earlier life: it stays in the table for two days.
    """
    if outcome.sessions:
        yield f"{outcome.sessions} sessions are left"
    if outcome.balancer_calls:
        yield f"the balancer has {outcome.balancer_calls} calls left"
    if outcome.worker_calls:
        yield f"the engines have {outcome.worker_calls} calls left"
    set_back = any(fault.shift_ms < 0 for fault in outcome.faults)
    for record in outcome.records:
        if record.state == "running" and not (set_back and record.source not in (BEGUN, NOBODY)):
            yield f"{record.program_id} is running"
