"""One call on its engine: however the engine behaves and whenever it is stopped, it ends, once and as it should."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from autellix.engine.executor import (
    Account,
    Answer,
    EngineCall,
    EngineGoneError,
    EngineInfo,
    Load,
    Notice,
    OnTurn,
    Output,
    Piece,
    Refusal,
)
from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import Call, Chunk, ProgramFacts, RoutedCall
from autellix.services.core import Out
from autellix.services.engine_worker.core import FORGOTTEN, End
from autellix.services.engine_worker.stream import CallStream
from autellix.services.runner import wall_ms

BODY = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
STOP = End(cancelled="by its client")
TOO_LONG = ErrorBody(message="too long", type="BadRequestError")


class PlayedEngine:
    """An engine whose every answer is what the test says: outputs, errors, or silence (None)."""

    def __init__(self, *script: Output | BaseException | None) -> None:
        self.info = EngineInfo(("m",), "atlas", 1, 0, 100)
        self.on_turn: OnTurn = lambda _turn: None
        self.script = script
        self.began = asyncio.Event()
        self.silent = asyncio.Event()
        self.closed = 0
        self.on_close: Callable[[], None] = lambda: None
        self.calls: list[EngineCall] = []

    async def run(self, call: EngineCall) -> AsyncGenerator[Output, None]:
        """Play the script."""
        self.calls.append(call)
        self.began.set()
        try:
            for line in self.script:
                if line is None:
                    self.silent.set()
                    await asyncio.Event().wait()
                elif isinstance(line, BaseException):
                    raise line
                else:
                    yield line
        finally:
            self.closed += 1
            await asyncio.sleep(0)  # an abort takes a moment
            self.on_close()

    async def account(self, call_id: CallId) -> Account:
        """Return nothing: it is the shell that asks."""
        return Account()

    def tell(self, notice: Notice) -> None:
        """Take no notice."""

    def load(self) -> Load:
        """Return that it is idle."""
        return Load()

    def series(self) -> str:
        """Return nothing: it is the shell that asks."""
        return ""


def stream_of(engine: PlayedEngine, said: list[Out] | None = None, **fields: Any) -> CallStream:
    """Return a call's stream on this engine."""
    known: dict[str, Any] = {
        "call_id": CallId("c1"),
        "program_id": ProgramId("p"),
        "thread_id": ThreadId("main"),
        "api": "/v1/chat/completions",
        "model": "m",
        "body": BODY,
        "stream": True,
        "reply_to": "_INBOX.1",
        "arrival_at_ms": 0.0,
    }
    call = Call(**{**known, **fields})
    routed = RoutedCall(
        call=call, program=ProgramFacts(), engine_id=EngineId("e0"), incarnation=Incarnation("i1"), reason=""
    )
    return CallStream(routed, engine, (said if said is not None else []).append)


async def test_chunks() -> None:
    """Each piece is one numbered chunk to the client's inbox, in its encoding."""
    said: list[Out] = []
    stream = stream_of(PlayedEngine(Piece([1]), Piece([2, 3]), Answer(None)), said, reply_json=True)

    assert await stream.run() == End(response=None)
    assert said == [
        Out("_INBOX.1", Chunk(call_id=CallId("c1"), seq=1, data=[1]), as_json=True),
        Out("_INBOX.1", Chunk(call_id=CallId("c1"), seq=2, data=[2, 3]), as_json=True),
    ]
    assert stream.seq == 2


async def test_preamble() -> None:
    """What a stream says before its call is scheduled waits for what it says next: a held call has told nothing."""
    said: list[Out] = []
    created, progress, text = ({"type": f"response.{name}"} for name in ("created", "in_progress", "output_text.delta"))
    engine = PlayedEngine(Piece([created]), Piece([progress]), None)
    stream = stream_of(engine, said)
    running = asyncio.create_task(stream.run())
    await engine.silent.wait()
    before = (stream.seq, list(said))
    stream.stop(STOP)
    await running
    whole: list[Out] = []
    await stream_of(PlayedEngine(Piece([created]), Piece([progress, text]), Answer(None)), whole).run()
    bare: list[Out] = []
    await stream_of(PlayedEngine(Piece([created]), Answer(None)), bare).run()

    assert before == (0, [])
    assert [out.message.data for out in whole if isinstance(out.message, Chunk)] == [[created, progress, text]]
    assert [out.message.data for out in bare if isinstance(out.message, Chunk)] == [[created]]


async def test_engine_gets_the_body() -> None:
    """The engine gets the request as the client wrote it, and the program's facts."""
    engine = PlayedEngine(Answer({"x": 1}))

    assert await stream_of(engine).run() == End(response={"x": 1})
    assert engine.calls[0].body == BODY
    assert engine.calls[0].stream
    assert engine.calls[0].program == ProgramFacts()


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        (Refusal(400, TOO_LONG), 400, None),
        (ValueError("odd"), 500, "internal_error"),
        (BaseException("a panic in Rust"), 500, "internal_error"),
        (TimeoutError(), 504, "deadline_exceeded"),
    ],
)
async def test_errors(line: Output | BaseException, status: int, code: str | None) -> None:
    """Every way in which an engine fails is a failure of this call, and the worker goes on."""
    end = await stream_of(PlayedEngine(line)).run()

    assert end.error
    assert (end.outcome, end.status, end.error.code) == ("failed", status, code)


async def test_engine_that_dies() -> None:
    """A client that has seen a part of its answer is told; of another call the balancer decides."""
    begun = await stream_of(PlayedEngine(Piece([1]), EngineGoneError("dead"))).run()
    untold = await stream_of(PlayedEngine(EngineGoneError("dead"))).run()

    assert begun.error
    assert (begun.status, begun.error.code) == (503, "engine_lost")
    assert untold == FORGOTTEN


async def test_stop_when_it_is_over() -> None:
    """A call that is none of ours any more is known as such, also when its answer is whole already."""
    stream = stream_of(PlayedEngine(Answer({"x": 1})))
    end = await stream.run()
    stream.stop(FORGOTTEN)

    assert end == End(response={"x": 1})
    assert stream.forgotten


async def test_engine_that_just_stops() -> None:
    """An answer that ends without an end is a failure, not a short answer."""
    end = await stream_of(PlayedEngine(Piece([1]))).run()

    assert (end.outcome, end.status) == ("failed", 502)


async def test_engine_that_cancels_itself() -> None:
    """A call whose engine gave it up unasked ends too."""
    assert (await stream_of(PlayedEngine(asyncio.CancelledError())).run()).outcome == "cancelled"


@pytest.mark.parametrize("api", ["/sleep", "/v1/completions/../../sleep", "", "sleep"])
async def test_other_endpoints_of_the_engine(api: str) -> None:
    """Of the engine's endpoints, which can put it to sleep or read its files, calls reach the generating ones only."""
    engine = PlayedEngine(Answer({}))
    end = await stream_of(engine, api=api).run()

    assert end.error
    assert (end.status, end.error.code) == (404, "unknown_api")
    assert not engine.calls


async def test_stop() -> None:
    """A call that is stopped is aborted in the engine, and ends as the order says."""
    engine = PlayedEngine(Piece([1]), None)
    stream = stream_of(engine)
    running = asyncio.create_task(stream.run())
    await engine.silent.wait()
    stream.stop(STOP)

    assert await running == STOP
    assert engine.closed == 1


async def test_stop_before_it_runs() -> None:
    """A call that is stopped before its first step never reaches the engine."""
    engine = PlayedEngine(Answer({}))
    stream = stream_of(engine)
    stream.stop(STOP)

    assert await stream.run() == STOP
    assert not engine.calls


async def test_stop_twice() -> None:
    """The first order counts; a second one, even while the engine aborts, disturbs nothing."""
    engine = PlayedEngine(None)
    stream = stream_of(engine)
    second: list[bool] = []
    engine.on_close = lambda: second.append(True)
    running = asyncio.create_task(stream.run())
    await engine.silent.wait()
    stream.stop(STOP)
    await asyncio.sleep(0)
    stream.stop(End(cancelled="with its program"))

    assert await running == STOP
    assert second == [True]


async def test_stop_when_over() -> None:
    """An order that comes after the end changes nothing."""
    stream = stream_of(PlayedEngine(Answer({"x": 1})))
    end = await stream.run()
    stream.stop(STOP)

    assert end == End(response={"x": 1})


async def test_stop_with_a_failing_abort() -> None:
    """A stopped call ends as the order says, also when the engine fails to abort it cleanly."""
    engine = PlayedEngine(None)
    stream = stream_of(engine)

    def fail() -> None:
        raise RuntimeError("cannot abort")

    engine.on_close = fail
    running = asyncio.create_task(stream.run())
    await engine.silent.wait()
    stream.stop(STOP)

    assert await running == STOP


async def test_deadline() -> None:
    """A call that is not whole at its deadline is aborted and fails with 504."""
    engine = PlayedEngine(Piece([1]), None)
    end = await stream_of(engine, deadline_at_ms=wall_ms() + 30).run()

    assert (end.outcome, end.status, engine.closed) == ("failed", 504, 1)


async def test_deadline_before_it_began() -> None:
    """A call whose deadline passed on its way is not run at all."""
    engine = PlayedEngine(Answer({}))
    end = await stream_of(engine, deadline_at_ms=wall_ms() - 1).run()

    assert (end.status, engine.calls) == (504, [])
