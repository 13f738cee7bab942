"""A call through the services, on both buses: frames, events and the table, in the order that clients rely on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from autellix.schemas import subjects
from autellix.schemas.codec import FRAMES, encode, is_json
from autellix.schemas.messages import (
    Accepted,
    CallAdmitted,
    CallFailed,
    CallFinished,
    Chunk,
    Failed,
    Finished,
    GetProgram,
    ListPrograms,
    ProgramEnded,
    ProgramRecord,
    StartSession,
    SubmitCall,
)

if TYPE_CHECKING:
    from tests.bus.conftest import Client, Pipeline

LIFE = ["submitted", "admitted", "routed", "started", "finished"]


async def test_whole_answer(client: Client) -> None:
    """A call is accepted, and finished with the OpenAI response and its account."""
    accepted, finished = await (await client.submit()).frames()

    assert isinstance(accepted, Accepted)
    assert isinstance(finished, Finished)
    assert (finished.seq, finished.call_id) == (1, accepted.call_id)
    assert finished.response["choices"][0]["message"]["content"] == "ok ok ok "
    assert (finished.call.output_tokens, finished.call.engine_id) == (3, "e0")
    assert finished.call.service_ms > 0


async def test_stream(client: Client) -> None:
    """A streamed call is accepted, then numbered chunks without gaps, then the end, which has no response."""
    first, *chunks, last = await (await client.submit({"stream": True, "max_tokens": 50})).frames()

    assert isinstance(first, Accepted)
    assert [chunk.seq for chunk in chunks if isinstance(chunk, Chunk)] == list(range(1, 51))
    assert isinstance(last, Finished)
    assert (last.seq, last.response) == (51, None)


async def test_completions(client: Client) -> None:
    """The other API goes the same way."""
    inbox = await client.send(
        subjects.CALLS_SUBMIT,
        encode(SubmitCall(body={"model": "m", "prompt": "hi", "max_tokens": 2}, api="/v1/completions")),
    )
    _, finished = await inbox.frames()

    assert isinstance(finished, Finished)
    assert finished.response["choices"][0]["text"] == "ok ok "


async def test_event_before_the_last_frame(client: Client) -> None:
    """`call.finished` is on the bus before the terminal frame, so who hears both hears it first."""
    for _ in range(20):
        await client.submit()
    order: dict[str, list[str]] = {}
    while sum(len(tags) for tags in order.values()) < 40:
        message = msgpack.unpackb((await client.heard.next()).data)
        if message["type"] in ("call.finished", "finished"):
            order.setdefault(message["call_id"], []).append(message["type"])

    assert list(order.values()) == [["call.finished", "finished"]] * 20


async def test_events_of_a_call(client: Client) -> None:
    """A call of its own makes its program's events and its own, each once."""
    await (await client.submit()).frames()
    await client.heard.event("program.ended")
    client.heard.arrived()
    await (await client.submit()).frames()
    tags = []
    while "program.ended" not in tags:
        subject = (await client.heard.next()).subject
        if subject.startswith("autellix.events.") and "engine" not in subject:
            tags.append(subject.removeprefix("autellix.events."))

    assert sorted(tags) == sorted(["program.started", *(f"call.{step}" for step in LIFE), "program.ended"])
    assert tags.index("call.finished") < tags.index("program.ended")
    assert tags[0] == "program.started"


async def test_table_is_up_to_date(client: Client) -> None:
    """A client that answers at once with its next call finds the one before it counted, every time."""
    program = await client.ask(subjects.SESSIONS_START, StartSession(name="agent"))
    attained = 0.0
    seen: list[float] = []
    expected: list[float] = []
    for _ in range(30):
        finished = (await (await client.submit(program_id=program.program_id)).frames())[-1]
        assert isinstance(finished, Finished)
        expected.append(attained)
        attained += finished.call.service_ms
    record: ProgramRecord = await client.ask(subjects.PROGRAMS_GET, GetProgram(program_id=program.program_id))
    while len(seen) < 30:
        admitted: CallAdmitted = await client.heard.event("call.admitted")
        seen.append(admitted.service_ms)

    assert seen == pytest.approx(expected)
    assert (record.name, record.state, record.calls, record.live_calls) == ("agent", "running", 30, 0)
    assert record.service_ms == pytest.approx(attained)
    assert record.critical_path_ms == pytest.approx(attained)


async def test_parallel_calls(client: Client) -> None:
    """Twenty calls of one program at once are all counted, and the longest is the critical path."""
    program = await client.ask(subjects.SESSIONS_START, StartSession())
    inboxes = [await client.submit({"max_tokens": 50}, program_id=program.program_id) for _ in range(20)]
    ends = [(await inbox.frames())[-1] for inbox in inboxes]
    record: ProgramRecord = await client.ask(subjects.PROGRAMS_GET, GetProgram(program_id=program.program_id))
    services = [end.call.service_ms for end in ends if isinstance(end, Finished)]

    assert (record.calls, record.output_tokens, record.live_calls) == (20, 1000, 0)
    assert record.service_ms == pytest.approx(sum(services))
    assert max(services) <= record.critical_path_ms <= record.service_ms


async def test_json_by_hand(client: Client) -> None:
    """Who asks in JSON is answered in JSON, to the last frame."""
    body = b'{"model": "m", "stream": true, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}'
    inbox = await client.send(subjects.CALLS_SUBMIT, b'{"type": "submit_call", "body": %s}' % body)
    frames = await inbox.data(4)
    listed = await (await client.send(subjects.PROGRAMS_LIST, b'{"type": "list_programs"}')).data(1)

    assert all(is_json(frame) for frame in [*frames, *listed])
    assert [type(FRAMES.decode(frame)).__name__ for frame in frames] == ["Accepted", "Chunk", "Chunk", "Finished"]


async def test_type_may_be_left_out(client: Client) -> None:
    """The subject says what a request is: by hand its type can be left out."""
    inbox = await client.send(subjects.SESSIONS_START, b"{}")

    assert (await inbox.next()).data.startswith(b'{"type":"session_started"')


REQUESTS = [subjects.SESSIONS_START, subjects.SESSIONS_TOUCH, subjects.SESSIONS_END, subjects.CALLS_SUBMIT,
            subjects.CALLS_CANCEL, subjects.PROGRAMS_LIST, subjects.PROGRAMS_GET, subjects.ENGINES_LIST,
            "autellix.engines.e0.control"]  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"\xc1", b"{", b"[1]", b'{"type": "nonsense"}', b"\x81\xa4type\xa1x"])
async def test_malformed_requests(client: Client, data: bytes) -> None:
    """On every public subject, what is no request gets one error in the OpenAI shape, and everything goes on."""
    inboxes = [await client.send(subject, data) for subject in REQUESTS]
    failures = [FRAMES.decode((await inbox.next()).data) for inbox in inboxes]
    answered = await (await client.submit()).frames()

    assert {(failed.status, failed.error.type) for failed in failures if isinstance(failed, Failed)} == {
        (400, "invalid_request_error")
    }
    assert len(failures) == len(REQUESTS)
    assert isinstance(answered[-1], Finished)
    assert [inbox.arrived() for inbox in inboxes] == [[]] * len(REQUESTS)


@pytest.mark.parametrize("subject", [subjects.CALL_SUBMITTED, subjects.CALL_ADMITTED, subjects.CALL_CANCEL,
                                     "autellix.internal.engines.e0.calls", *subjects.CALL_ENDS,
                                     "autellix.events.engine.load", "autellix.events.program.ended"])  # fmt: skip
async def test_garbage_inside(client: Client, subject: str) -> None:
    """Garbage on the subjects between services, and in events, stops none of them."""
    for data in (b"", b"\xc1", b"{}", encode(ListPrograms())):
        await client.bus.publish(subject, data)

    assert isinstance((await (await client.submit()).frames())[-1], Finished)


async def test_refused_call(client: Client) -> None:
    """A call that is refused is answered once, and leaves no event and no program."""
    client.events()
    (failed,) = await (await client.submit({"temperature": 99})).frames()
    listed = await client.ask(subjects.PROGRAMS_LIST, ListPrograms())

    assert isinstance(failed, Failed)
    assert (failed.status, failed.error.param) == (400, "temperature")
    assert listed.programs == []
    assert {event.__struct_config__.tag for event in client.events()} <= {"engine.load"}


async def test_unknown_model(client: Client) -> None:
    """A model that nobody serves is a 404, with an event that ends the call's program."""
    _, failed = await (await client.submit({"model": "nobody's"})).frames()
    event: CallFailed = await client.heard.event("call.failed")

    assert isinstance(failed, Failed)
    assert (failed.status, failed.error.code, failed.error.param) == (404, "model_not_found", "model")
    assert (event.status, event.call_id) == (404, failed.call_id)
    assert isinstance(await client.heard.event("program.ended"), ProgramEnded)


async def test_no_engine(pipeline: Pipeline) -> None:
    """Without an engine a call fails at once, safe to retry, and its program does not stay."""
    _, failed = await (await pipeline.client.submit()).frames()
    await pipeline.client.heard.event("program.ended")

    assert isinstance(failed, Failed)
    assert (failed.status, failed.error.code, failed.retry_safe) == (503, "no_engine", True)


async def test_two_engines_share(pipeline: Pipeline) -> None:
    """Many calls at once are spread over both engines, and both are empty in the end."""
    for engine_id in ("e0", "e1"):
        await pipeline.start_engine(engine_id)
    inboxes = await asyncio.gather(*(pipeline.client.submit({"max_tokens": 200}) for _ in range(40)))
    ends: list[Any] = [(await inbox.frames())[-1] for inbox in inboxes]
    by_engine = [end.call.engine_id for end in ends]
    while any((await pipeline.engines()).values()):
        pass

    assert all(isinstance(end.call, CallFinished) for end in ends)
    assert 12 <= by_engine.count("e0") <= 28
