"""Cancelling, draining, deadlines: a call in flight ends in one terminal frame, and nothing stays behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.messages import (
    CallCancelled,
    CancelAccepted,
    CancelCalls,
    ControlEngine,
    EndSession,
    EngineLoad,
    Failed,
    Finished,
    GetProgram,
    ListPrograms,
    ProgramRecord,
    SessionEnded,
    StartSession,
)

if TYPE_CHECKING:
    from tests.bus.conftest import Client, Inbox, Pipeline

LONG = {"stream": True, "max_tokens": 50_000}
DRAIN = "autellix.engines.e0.control"


@pytest.fixture
async def slow(pipeline: Pipeline) -> Client:
    """Return a client of an engine whose steps take a while."""
    await pipeline.start_engine(step_ms=2.0)
    return pipeline.client


async def idle(pipeline: Pipeline) -> list[ProgramRecord]:
    """Return the process table when the engines say that they have no calls."""
    while any((await pipeline.engines()).values()):
        pass
    programs: list[ProgramRecord] = (await pipeline.client.ask(subjects.PROGRAMS_LIST, ListPrograms())).programs
    return programs


async def ended(inbox: Inbox) -> Failed:
    """Return the failure that a call ends in."""
    last = (await inbox.frames())[-1]
    assert isinstance(last, Failed)
    return last


async def test_cancel_while_it_runs(pipeline: Pipeline, slow: Client) -> None:
    """A running call that is cancelled ends with 499, is charged for what it had, and is gone from the engine."""
    inbox = await slow.submit(LONG)
    started = await slow.heard.event("call.started")
    answer = await slow.ask(subjects.CALLS_CANCEL, CancelCalls(call_id=started.call_id))
    failed = await ended(inbox)
    event: CallCancelled = await slow.heard.event("call.cancelled")
    (program,) = await idle(pipeline)

    assert isinstance(answer, CancelAccepted)
    assert (failed.status, failed.error.code, failed.call_id) == (499, "cancelled", started.call_id)
    assert event.service_ms > 0
    assert program.service_ms == event.service_ms
    assert inbox.arrived() == []


async def test_cancel_twice_and_too_late(slow: Client) -> None:
    """Cancelling again, or after the end, is answered and does nothing; so is cancelling what never was."""
    inbox = await slow.submit({"max_tokens": 1})
    _, finished = await inbox.frames()
    assert isinstance(finished, Finished)
    orders = [CancelCalls(call_id=finished.call_id)] * 2 + [CancelCalls(call_id="call-never")]  # type: ignore[arg-type]
    answers = [await slow.ask(subjects.CALLS_CANCEL, order) for order in orders]
    after = (await (await slow.submit({"max_tokens": 1})).frames())[-1]

    assert answers == [CancelAccepted()] * 3
    assert isinstance(after, Finished)
    assert inbox.arrived() == []


async def test_cancel_at_once(pipeline: Pipeline, slow: Client) -> None:
    """Fifty calls of which half are cancelled as soon as they are accepted leave every count at zero."""
    inboxes = [await slow.submit({"max_tokens": 5} if number % 2 else LONG) for number in range(50)]
    firsts = [(await inbox.next()).data for inbox in inboxes]
    for first in firsts[::2]:
        await slow.ask(subjects.CALLS_CANCEL, CancelCalls(call_id=slow.decoded(first).call_id))
    ends = [(await inbox.frames())[-1] for inbox in inboxes]
    programs = await idle(pipeline)

    assert [end.status if isinstance(end, Failed) else 200 for end in ends] == [499, 200] * 25
    assert [program.live_calls for program in programs] == [0] * 50
    assert [inbox.arrived() for inbox in inboxes] == [[]] * 50


async def test_cancel_of_a_program(slow: Client) -> None:
    """Cancelling a program's calls ends those that run; the program goes on and its next call runs."""
    program = await slow.ask(subjects.SESSIONS_START, StartSession())
    inboxes = [await slow.submit(LONG, program_id=program.program_id) for _ in range(3)]
    for inbox in inboxes:
        await inbox.next()
    await slow.ask(subjects.CALLS_CANCEL, CancelCalls(program_id=program.program_id))
    statuses = [(await ended(inbox)).status for inbox in inboxes]
    after = (await (await slow.submit({"max_tokens": 1}, program_id=program.program_id)).frames())[-1]

    assert statuses == [499] * 3
    assert isinstance(after, Finished)


async def test_end_of_a_program(pipeline: Pipeline, slow: Client) -> None:
    """Ending a program cancels its live calls and no others, and charges them."""
    program = await slow.ask(subjects.SESSIONS_START, StartSession())
    own = [await slow.submit(LONG, program_id=program.program_id) for _ in range(3)]
    foreign = await slow.submit({"max_tokens": 50})
    for _ in range(4):
        await slow.heard.event("call.started")
    answer = await slow.ask(subjects.SESSIONS_END, EndSession(program_id=program.program_id))
    statuses = [(await ended(inbox)).status for inbox in own]
    other = (await foreign.frames())[-1]
    await idle(pipeline)
    record: ProgramRecord = await slow.ask(subjects.PROGRAMS_GET, GetProgram(program_id=program.program_id))

    assert isinstance(answer, SessionEnded)
    assert statuses == [499] * 3
    assert isinstance(other, Finished)
    assert (record.state, record.calls, record.live_calls) == ("ended", 3, 0)
    assert record.service_ms > 0


async def test_named_session_after_its_end(slow: Client) -> None:
    """A named session that was ended with calls in flight can be used again at once, and begins anew."""
    first = await slow.submit(LONG, session="agent")
    program_id = slow.decoded((await first.next()).data).program_id
    await slow.ask(subjects.SESSIONS_END, EndSession(program_id=program_id))
    again = (await (await slow.submit({"max_tokens": 1}, session="agent")).frames())[-1]
    await first.frames()
    record: ProgramRecord = await slow.ask(subjects.PROGRAMS_GET, GetProgram(program_id=program_id))

    assert isinstance(again, Finished)
    assert again.call.program_id == program_id
    assert record.state == "running"


async def test_deadline(pipeline: Pipeline, slow: Client) -> None:
    """A call that is not answered by its deadline ends with 504 and leaves the engine."""
    failed = await ended(await slow.submit(LONG, deadline_ms=60.0))
    in_time = (await (await slow.submit({"max_tokens": 1}, deadline_ms=5000.0)).frames())[-1]
    programs = await idle(pipeline)

    assert (failed.status, failed.error.code) == (504, "deadline_exceeded")
    assert isinstance(in_time, Finished)
    assert [program.live_calls for program in programs] == [0, 0]


async def test_drain_and_resume(slow: Client) -> None:
    """A draining engine lets its calls end and refuses new ones as safe to retry; resumed, it takes them."""
    running = await slow.submit({"max_tokens": 100})
    await slow.heard.event("call.started")
    load: Any = await slow.ask(DRAIN, ControlEngine(action="drain"))
    refused = await ended(await slow.submit())
    finished = (await running.frames())[-1]
    resumed: Any = await slow.ask(DRAIN, ControlEngine(action="resume"))
    after = (await (await slow.submit({"max_tokens": 1})).frames())[-1]

    assert isinstance(load, EngineLoad)
    assert (load.state, load.calls, resumed.state) == ("draining", 1, "ready")
    assert (refused.status, refused.retry_safe) == (503, True)
    assert isinstance(finished, Finished)
    assert isinstance(after, Finished)


async def test_unknown_order(slow: Client) -> None:
    """An engine refuses an order that it does not know, and goes on."""
    failed = await slow.ask(DRAIN, ControlEngine(action="explode"))
    after = (await (await slow.submit({"max_tokens": 1})).frames())[-1]

    assert isinstance(failed, Failed)
    assert failed.status == 400
    assert isinstance(after, Finished)


async def test_worker_that_stops(pipeline: Pipeline) -> None:
    """A worker that is stopped lets short calls end, cuts long ones with an error, and leaves the rotation."""
    await pipeline.start_engine(step_ms=2.0, drain_s=0.3)
    short, long = await pipeline.client.submit({"max_tokens": 20}), await pipeline.client.submit(LONG)
    for _ in range(2):
        await pipeline.client.heard.event("call.started")
    await pipeline.worker_stack.aclose()
    finished, failed = (await short.frames())[-1], await ended(long)
    refused = await ended(await pipeline.client.submit())

    assert isinstance(finished, Finished)
    assert (failed.status, failed.error.code, failed.retry_safe) == (503, "engine_stopping", False)
    assert (refused.status, refused.error.code) == (503, "no_engine")
    assert await pipeline.engines() == {}
    await asyncio.sleep(0)
    assert long.arrived() == []
