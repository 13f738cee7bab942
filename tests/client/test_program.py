"""A program against a pipeline that speaks the protocol on a real NATS server."""

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from autellix.client import CallFailedError, Patience, Program, UnreachableError, connection
from autellix.client.connection import shared
from autellix.schemas.base import ErrorBody, Message
from autellix.schemas.ids import CallId
from autellix.schemas.messages import (
    CancelCalls,
    EndSession,
    Failed,
    ListEngines,
    StartSession,
    SubmitCall,
    TouchSession,
)

if TYPE_CHECKING:
    from tests.client.conftest import Pipeline

HELLO = [{"role": "user", "content": "Hello my world"}]


async def test_chat_returns_the_answer(pipeline: "Pipeline") -> None:
    """The answer has the text, the message, the reason, the usage and the engine's account."""
    async with Program("greeter", model="m") as program:
        answer = await program.chat(HELLO, max_tokens=8)

    assert answer.text == "Hello my world"
    assert answer.message == {"role": "assistant", "content": "Hello my world"}
    assert answer.finish_reason == "stop"
    assert answer.usage == {"completion_tokens": 1}
    assert answer.call_id == answer.call.call_id


async def test_request_carries_program_thread_and_fields(pipeline: "Pipeline") -> None:
    """What is submitted names the program, the thread, the parents, the deadline and every OpenAI field."""
    async with Program("greeter", model="m") as program:
        first = await program.chat(HELLO, max_tokens=8)
        await program.chat(HELLO, deadline_s=2)

    calls = pipeline.all(SubmitCall)
    assert [program.id, program.id] == [call.program_id for call in calls]
    assert [call.thread_id for call in calls] == ["main", "main"]
    assert [(), (first.call_id,)] == [call.parents for call in calls]
    assert [call.deadline_ms for call in calls] == [None, 2000]
    assert calls[0].body == {"model": "m", "max_tokens": 8, "messages": HELLO, "stream": False}


async def test_parents_can_be_declared(pipeline: "Pipeline") -> None:
    """Declared parents replace those that the tasks show."""
    async with Program(model="m") as program:
        await program.chat(HELLO)
        await program.chat(HELLO, parents=[CallId("x")])

    assert pipeline.all(SubmitCall)[1].parents == ("x",)


async def test_stream_yields_pieces_then_the_answer(pipeline: "Pipeline") -> None:
    """The pieces come in order, and afterwards the whole answer is there."""
    async with Program(model="m") as program:
        stream = program.stream(HELLO)
        pieces = [piece async for piece in stream]

    assert pieces == ["Hello", "my", "world"]
    assert stream.answer.text == "Hellomyworld"


async def test_session_ends_with_the_block(pipeline: "Pipeline") -> None:
    """Entering starts a session under the program's name, of its kind of agent, and leaving ends it."""
    async with Program("greeter", agent="polite", model="m") as program:
        pass

    assert [StartSession(name="greeter", agent="polite")] == pipeline.all(StartSession)
    assert [EndSession(program_id=program.id)] == pipeline.all(EndSession)


async def test_session_ends_when_the_block_raises(pipeline: "Pipeline") -> None:
    """An exception passes through, and the session is ended all the same."""
    with pytest.raises(KeyError):
        async with Program(model="m"):
            raise KeyError

    assert len(pipeline.all(EndSession)) == 1


async def test_session_ends_when_the_task_is_cancelled(pipeline: "Pipeline") -> None:
    """A cancelled agent ends its session before it is gone."""
    entered = asyncio.Event()

    async def agent() -> None:
        async with Program(model="m"):
            entered.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(agent())
    await entered.wait()
    task.cancel()

    assert [result and None for result in await asyncio.gather(task, return_exceptions=True)] == [None]
    assert len(pipeline.all(EndSession)) == 1


async def test_session_is_kept_alive(pipeline: "Pipeline") -> None:
    """An open program is touched well within its time to live, however long it makes no call."""
    async with Program(model="m", ttl_s=0.03) as program:
        touched = await pipeline.first(TouchSession)

    assert TouchSession(program_id=program.id) == touched


async def test_model_is_that_of_the_first_engine(pipeline: "Pipeline") -> None:
    """A program that names no model asks the engines once, and only then."""
    async with Program() as program:
        await program.chat(HELLO)

    async with Program(model="m"):
        pass

    assert pipeline.all(SubmitCall)[0].body["model"] == "small"
    assert len(pipeline.all(ListEngines)) == 1


async def test_gather_makes_threads(pipeline: "Pipeline") -> None:
    """Parallel calls are threads of their own, and the call behind them waited for all."""
    async with Program(model="m") as program:
        answers = await asyncio.gather(*(program.chat(HELLO) for _ in range(3)))
        await program.chat(HELLO)

    calls = pipeline.all(SubmitCall)
    assert {"t2", "t3", "t4"} == {call.thread_id for call in calls[:3]}
    assert {answer.call_id for answer in answers} == set(calls[3].parents)


async def test_failure_tells_status_body_and_retry(pipeline: "Pipeline") -> None:
    """A failed frame becomes an exception with all that the frame says."""
    error = ErrorBody(message="Too many calls.", type="server_error", code="busy")
    pipeline.script = lambda call, call_id: [Failed(status=429, error=error, retry_after_s=2.0, retry_safe=True)]

    async with Program(model="m") as program:
        with pytest.raises(CallFailedError, match=r"Too many calls\. \(status 429\)") as failed:
            await program.chat(HELLO)

    assert (429, error, True, 2.0) == (
        failed.value.status,
        failed.value.error,
        failed.value.retry_safe,
        failed.value.retry_after_s,
    )


async def test_lost_frame_is_an_error(pipeline: "Pipeline") -> None:
    """A gap in the stream is never a shorter answer."""
    pipeline.script = lambda call, call_id: [pipeline.accepted(call, call_id), pipeline.finished(call_id, 2)]

    async with Program(model="m") as program:
        with pytest.raises(CallFailedError) as failed:
            await program.chat(HELLO)

    assert failed.value.error.code == "lost_frames"


async def test_silence_has_an_end(pipeline: "Pipeline") -> None:
    """A call that is accepted and then forgotten fails after the time of silence, and is cancelled."""
    pipeline.script = lambda call, call_id: [pipeline.accepted(call, call_id)]

    async with Program(model="m", patience=Patience(silence_s=0.05)) as program:
        with pytest.raises(CallFailedError) as failed:
            await program.chat(HELLO)

    assert failed.value.status == 504
    assert await pipeline.first(CancelCalls)


async def test_cancelled_task_cancels_its_call(pipeline: "Pipeline") -> None:
    """Cancelling the task that waits for a call cancels that call, and no other."""
    streaming = asyncio.Event()

    def begin(call: SubmitCall, call_id: CallId) -> list[Message]:
        return [pipeline.accepted(call, call_id), pipeline.chunk(call_id, 1, call_id)]

    async def read(program: Program) -> None:
        async for _ in program.stream(HELLO):
            streaming.set()

    pipeline.script = begin
    async with Program(model="m") as program:
        task = asyncio.create_task(read(program))
        await streaming.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cancelled = await pipeline.first(CancelCalls)

    assert task.cancelled()
    assert cancelled.call_id is not None


async def test_call_is_cancelled_even_before_it_is_accepted(pipeline: "Pipeline") -> None:
    """A task that is cancelled at once waits to learn its call's id, and cancels it."""
    submitted = asyncio.Event()

    def accept(call: SubmitCall, call_id: CallId) -> list[Message]:
        submitted.set()
        return [pipeline.accepted(call, call_id)]

    pipeline.script = accept
    async with Program(model="m") as program:
        task = asyncio.create_task(program.chat(HELLO))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cancelled = await pipeline.first(CancelCalls)

    assert task.cancelled()
    assert submitted.is_set()
    assert cancelled.call_id is not None


async def test_leaving_a_stream_early_cancels_the_call(pipeline: "Pipeline") -> None:
    """A loop that is left with `break` does not leave the engine working."""
    pipeline.script = lambda call, call_id: [pipeline.accepted(call, call_id), pipeline.chunk(call_id, 1, "a")]

    async with Program(model="m") as program:
        async for _ in program.stream(HELLO):
            break
        cancelled = await pipeline.first(CancelCalls)

    assert cancelled.call_id is not None


async def test_end_of_the_program_ends_waiting_calls(pipeline: "Pipeline") -> None:
    """A task that still waits for a call when its program ends gets an error, and does not hang."""
    pipeline.script = lambda call, call_id: [pipeline.accepted(call, call_id)]

    async with Program(model="m") as program:
        task = asyncio.create_task(program.chat(HELLO))
        await pipeline.first(SubmitCall)

    with pytest.raises(CallFailedError, match="ended before"):
        await task


async def test_programs_share_a_connection(pipeline: "Pipeline", nats_url: str) -> None:
    """All programs of a process use one connection, which the last one closes."""
    async with shared(nats_url) as first:
        async with Program(model="m"), Program(model="m"), shared(nats_url) as second:
            assert first is second
        assert not first._client.is_closed

    assert first._client.is_closed


async def test_no_server_is_said_at_once() -> None:
    """A program without a NATS server fails with a sentence that names the URL, but not its password."""
    with pytest.raises(UnreachableError, match=r"^No NATS server at nats://127\.0\.0\.1:9: .*Connect call failed"):
        async with Program(model="m", nats_url="nats://me:secret@127.0.0.1:9"):
            pass


async def test_missing_default_server_comes_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who named no server is told how to name one."""
    monkeypatch.delenv("AUTELLIX_NATS_URL", raising=False)
    monkeypatch.setattr(connection, "DEFAULT_URL", "nats://127.0.0.1:9")
    with pytest.raises(UnreachableError, match=r"; is AUTELLIX_NATS_URL set\? `autellix up` prints it$"):
        async with Program(model="m"):
            pass


async def test_silent_server_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts the connection and says nothing is named with its reason."""
    monkeypatch.setattr(connection, "CONNECT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"nats://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UnreachableError, match=rf"^No NATS server at {url}: TimeoutError$"):
            async with Program(model="m", nats_url=url):
                pass


async def test_no_services_are_said_at_once(nats_url: str) -> None:
    """A program on a server where no Autellix runs fails at once, and may try again."""
    with pytest.raises(CallFailedError, match="Nobody answers") as failed:
        async with Program(model="m", nats_url=nats_url):
            pass

    assert failed.value.retry_safe


async def test_calls_need_an_open_program() -> None:
    """A program that is not entered makes no calls."""
    with pytest.raises(RuntimeError, match="async with"):
        await Program(model="m").chat(HELLO)
