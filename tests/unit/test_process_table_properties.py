"""The process table learns from events alone: any order of them, and any of them twice, gives the same table."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.schemas import messages
from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId
from autellix.schemas.messages import (
    CallCancelled,
    CallEnd,
    CallFailed,
    CallFinished,
    CallRouted,
    Event,
    ListPrograms,
    ProgramEnded,
    ProgramExpired,
    ProgramList,
    ProgramRecord,
    ProgramStarted,
)
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Reply
from autellix.services.process_table.core import ProcessTable

durations = st.floats(0, 1e5)
counts = st.integers(0, 10_000)
BROKEN = ErrorBody(message="it broke", type="server_error")


@st.composite
def ends(draw: st.DrawFn, program_id: ProgramId, number: int) -> CallEnd:
    """Return the end of one call of a program, of any kind."""
    arrival_at_ms = draw(durations)
    known: dict[str, Any] = {
        "call_id": CallId(f"{program_id}-{number}"),
        "program_id": program_id,
        "thread_id": ThreadId(draw(st.sampled_from(["main", "t2", "t3"]))),
        "arrival_at_ms": arrival_at_ms,
        "at_ms": arrival_at_ms + draw(durations),
        "service_ms": draw(durations),
        "wait_ms": draw(durations),
        "critical_path_at_arrival_ms": draw(durations),
        "prompt_tokens": draw(counts),
        "cached_tokens": draw(counts),
        "output_tokens": draw(counts),
        "preemptions": draw(counts),
    }
    kind = draw(st.sampled_from([CallFinished, CallFailed, CallCancelled]))
    return kind(**known, status=500, error=BROKEN) if kind is CallFailed else kind(**known)


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """Return what happens to a few programs: starts, routes, ends of calls, ends."""
    events: list[Event] = []
    for name in draw(st.lists(st.sampled_from("abc"), unique=True, min_size=1)):
        program_id = ProgramId(name)
        events.append(ProgramStarted(program_id=program_id, name=f"agent {name}", at_ms=-draw(durations)))
        for number in range(draw(st.integers(0, 4))):
            end = draw(ends(program_id, number))
            engine_id = EngineId(draw(st.sampled_from(["e0", "e1"])))
            route = CallRouted(
                call_id=end.call_id,
                program_id=program_id,
                thread_id=end.thread_id,
                at_ms=float(number),
                engine_id=engine_id,
                reason="",
                becomes_home=draw(st.booleans()),
            )
            events += [route, end]
        if over := draw(st.sampled_from([None, ProgramEnded, ProgramExpired])):
            events.append(over(program_id=program_id, at_ms=3e5))
    return events


def table_after(events: list[Event]) -> dict[ProgramId, ProgramRecord]:
    """Return the rows that these events make."""
    table = ProcessTable(ProcessTableSettings())
    for event in events:
        assert list(table.handle(event, 0.0)) == []
    (out,) = table.handle(ListPrograms(), 4e5, Reply("_INBOX.1"))
    assert isinstance(out.message, ProgramList)
    return {record.program_id: record for record in out.message.programs}


def builtins(rows: dict[ProgramId, ProgramRecord]) -> dict[str, Any]:
    """Return the rows flat, so that numbers can be compared up to rounding."""
    flat: dict[str, Any] = {}
    for program_id, record in rows.items():
        for name in record.__struct_fields__:
            flat[f"{program_id}.{name}"] = getattr(record, name)
        flat[f"{program_id}.engines"] = " ".join(sorted(record.engines))
        for thread_id, thread in flat.pop(f"{program_id}.threads").items():
            for name in thread.__struct_fields__:
                flat[f"{program_id}.{thread_id}.{name}"] = getattr(thread, name)
    return flat


@given(lives(), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(events: list[Event], chance: random.Random) -> None:
    """Events shuffled, and some of them delivered again, give the table of the events in order."""
    shuffled = events + chance.choices(events, k=3)
    chance.shuffle(shuffled)

    assert builtins(table_after(shuffled)) == pytest.approx(builtins(table_after(events)))


@given(lives())
def test_totals(events: list[Event]) -> None:
    """A row's totals are those of its ended calls, whichever way they ended, and nothing is live after them."""
    rows = table_after(events)
    for program_id, row in rows.items():
        ended = [e for e in events if isinstance(e, messages.CallEnded) and e.program_id == program_id]

        assert row.calls == len(ended) == sum(thread.calls for thread in row.threads.values())
        assert row.service_ms == pytest.approx(sum(event.service_ms for event in ended))
        assert row.waiting_ms == pytest.approx(sum(event.wait_ms for event in ended))
        assert row.output_tokens == sum(event.output_tokens for event in ended)
        assert (row.live_calls, row.busy_ms) == (0, 0.0)
