"""What must hold, whatever goes wrong: each check returns what is wrong, in sentences, and nothing when all is well."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf, isclose
from typing import NamedTuple

from autellix.schemas.messages import CallCancelled, CallEnd, CallFailed, CallFinished, Event, ProgramRecord
from autellix.services.config import ProcessTableSettings
from autellix.services.process_table.core import ProcessTable
from autellix.services.simulator.faults.clients import Attempt
from autellix.services.simulator.faults.plan import Fault

WAIT_MAX_MS = 180_000.0
"""No call of these workloads may take longer: all their work is less than a minute of one engine, promoted or not, no
fault lasts longer than half a minute, and a call runs again once."""
SETTLE_MS = 30_000.0
"""How long after a fault its effects may come: a call passed on again, an engine that fell silent."""


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
    """Tell whether the design lets the end of a call be lost: architecture.md, "Not yet", and a bus that is away.

    That is: frames under way when the bus goes; a call whose session manager and another service on its way die; and
    one whose balancer and engine die, or stand still, in its life. A jump of the wall clock is an engine's silence.
    """
    until_ms = attempt.ended_ms or inf
    met = [
        fault for fault in outcome.faults if fault.at_ms <= until_ms and fault.at_ms + fault.for_ms >= attempt.at_ms - SETTLE_MS
    ]
    if attempt.inbox in outcome.lost_inboxes or any(fault.kind == "outage" for fault in met):
        return True
    places = {fault.place for fault in met}
    engines = any(place.startswith("engine") for place in places) or "clock" in places
    manager, table, balancer = (name in places for name in ("session-manager", "process-table", "load-balancer"))
    return (manager and (table or balancer or engines)) or (balancer and engines)


def one_end(outcome: Outcome) -> Iterator[str]:
    """Every accepted call whose client stays gets one terminal frame, and nothing after it."""
    for attempt in outcome.attempts:
        if not attempt.call_id or attempt.left:
            continue
        if not attempt.ends and not is_excused(attempt, outcome):
            yield f"{attempt.call_id} has no end"
        if len(attempt.ends) > 1 or attempt.late:
            yield f"{attempt.call_id} has {len(attempt.ends)} ends and {attempt.late} frames after the first"


def one_answer(outcome: Outcome) -> Iterator[str]:
    """No call is answered twice."""
    answers: dict[str, set[float]] = defaultdict(set)
    for event in outcome.kept:
        if isinstance(event, CallFinished):
            answers[event.call_id].add(event.at_ms)
    yield from (f"{call_id} is answered {len(times)} times" for call_id, times in answers.items() if len(times) > 1)


def bounded_wait(outcome: Outcome) -> Iterator[str]:
    """No call waits for longer than all the work there is, and the faults, may take."""
    for attempt in outcome.attempts:
        took_ms = attempt.ended_ms - attempt.at_ms
        if attempt.ends and not attempt.left and took_ms > WAIT_MAX_MS and not is_excused(attempt, outcome):
            yield f"{attempt.call_id} took {took_ms / 1000:.1f} s"


def ends_of(kept: Iterable[Event]) -> dict[str, dict[str, list[CallEnd]]]:
    """Return the ends of each program's calls, by program and call."""
    ends: dict[str, dict[str, list[CallEnd]]] = defaultdict(lambda: defaultdict(list))
    for event in kept:
        if isinstance(event, CallFinished | CallFailed | CallCancelled):
            ends[event.program_id][event.call_id].append(event)
    return ends


def accounts(outcome: Outcome) -> Iterator[str]:
    """A program's service is that of its ended calls, each charged once; when all is quiet none is live.

    Of a call with two ends, as one that was given up and turned up later, either may be the one that is charged: which
    of two subjects is heard first is not promised. A named session that begins anew is charged anew: it is passed over.
    """
    ends = ends_of(outcome.kept)
    begun: dict[str, int] = defaultdict(int)
    for event in outcome.kept:
        begun[getattr(event, "program_id", "")] += event.__struct_config__.tag == "program.started"
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
    """The table equals one that hears all events in order; calls with two ends are for `accounts`."""
    fresh = ProcessTable(ProcessTableSettings())
    for event in outcome.kept:
        fresh.recover(event, event.at_ms)
    expected = {record.program_id: record for record in records_of(fresh)}
    twice = {program for program, calls in ends_of(outcome.kept).items() if any(len(each) > 1 for each in calls.values())}
    for record in outcome.records:
        other = expected.pop(record.program_id, None)
        if other is None:
            yield f"{record.program_id} is in no event"
        elif record.program_id not in twice and not (
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
    """No program is stuck, and nobody has a call any more."""
    if outcome.sessions:
        yield f"{outcome.sessions} sessions are left"
    if outcome.balancer_calls:
        yield f"the balancer has {outcome.balancer_calls} calls left"
    if outcome.worker_calls:
        yield f"the engines have {outcome.worker_calls} calls left"
    yield from (f"{record.program_id} is {record.state}" for record in outcome.records if record.state == "running")
