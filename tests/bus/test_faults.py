"""Faults that systems of this kind are known for: free tokens for who hangs up, short calls behind a long one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from autellix.schemas import subjects
from autellix.schemas.codec import Decoder
from autellix.schemas.messages import (
    AdmittedCall,
    CallCancelled,
    CancelCalls,
    Failed,
    Finished,
    GetProgram,
    ListEngines,
    ListPrograms,
    ProgramRecord,
    StartSession,
)

if TYPE_CHECKING:
    from tests.bus.conftest import Inbox, Pipeline

ADMITTED: Decoder[AdmittedCall] = Decoder(AdmittedCall)
HANG_UPS = 20
STREAM: dict[str, Any] = {"stream": True, "max_tokens": 50_000}


async def admitted(heard: Inbox) -> AdmittedCall:
    """Return the next call on its way to the load balancer."""
    while (delivery := await heard.next()).subject != subjects.CALL_ADMITTED:
        pass
    return ADMITTED.decode(delivery.data)


async def test_hanging_up_early_is_charged_each_time(pipeline: Pipeline) -> None:
    """A program that leaves every stream before its end has attained what it was given, and its next call knows."""
    await pipeline.start_engine(step_ms=1.0)
    client = pipeline.client
    program = await client.ask(subjects.SESSIONS_START, StartSession())
    ends: list[CallCancelled] = []
    for _ in range(HANG_UPS):
        inbox = await client.submit(STREAM, program_id=program.program_id)
        for _ in range(4):
            call_id = client.decoded((await inbox.next()).data).call_id
        await client.ask(subjects.CALLS_CANCEL, CancelCalls(call_id=call_id))
        await inbox.frames()
        ends.append(await client.heard.event("call.cancelled"))
    await client.submit({"max_tokens": 1}, program_id=program.program_id)
    known = (await admitted(client.heard)).program
    row: ProgramRecord = await client.ask(subjects.PROGRAMS_GET, GetProgram(program_id=program.program_id))

    assert min(end.output_tokens for end in ends) >= 3
    assert min(end.service_ms for end in ends) > 0
    assert known.service_ms == sum(end.service_ms for end in ends)
    assert (row.calls - HANG_UPS) in (0, 1)
    assert row.output_tokens - (row.calls - HANG_UPS) == sum(end.output_tokens for end in ends)


async def test_counts_are_the_same_however_it_is_asked(pipeline: Pipeline) -> None:
    """What a call is charged for is what it was given, streamed or not, with usage or without."""
    await pipeline.start_engine()
    ways: list[dict[str, Any]] = [{}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}]
    counted = []
    for way in ways:
        end = (await (await pipeline.client.submit({**way, "max_tokens": 197})).frames())[-1]
        assert isinstance(end, Finished)
        counted.append(end.call.output_tokens)

    assert counted == [197, 197, 197]


async def test_short_calls_do_not_wait_for_a_long_one(pipeline: Pipeline) -> None:
    """Of thirty calls that come at once, the first with a prompt of 20,000 words, the others end while it runs."""
    await pipeline.start_engine(step_ms=1.0)
    client = pipeline.client
    words = {"messages": [{"role": "user", "content": "word " * 20_000}]}
    long = await client.submit({**words, **STREAM})
    short = [await client.submit({"max_tokens": 2}) for _ in range(29)]
    ends = [(await inbox.frames())[-1] for inbox in short]
    first = client.decoded((await long.next()).data)
    await client.ask(subjects.CALLS_CANCEL, CancelCalls(call_id=first.call_id))
    last = (await long.frames())[-1]

    assert [type(end) for end in ends] == [Finished] * 29
    assert isinstance(last, Failed)
    assert last.status == 499


async def test_an_engine_takes_calls_from_its_first_word_on(pipeline: Pipeline) -> None:
    """A call that is sent the moment an engine says that it is up is answered, each time."""
    client = pipeline.client
    for number in range(30):
        starting = asyncio.create_task(pipeline.start_engine(f"e{number}"))
        await client.heard.event("engine.up")
        end = (await (await client.submit({"max_tokens": 1})).frames())[-1]
        assert isinstance(end, Finished), end
        assert end.call.engine_id == f"e{number}"
        await starting
        await pipeline.worker_stack.aclose()
        assert not (await client.ask(subjects.ENGINES_LIST, ListEngines())).engines
    programs = (await client.ask(subjects.PROGRAMS_LIST, ListPrograms())).programs

    assert [program.live_calls for program in programs] == [0] * 30
