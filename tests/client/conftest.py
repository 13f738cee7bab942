"""A pipeline whose answers a test decides, on a real NATS server."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from autellix.client.plan import Plan
from autellix.client.stack import Stack
from autellix.schemas import subjects
from autellix.schemas.base import Message
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import (
    Accepted,
    CallFinished,
    CancelAccepted,
    CancelCalls,
    Chunk,
    EndSession,
    EngineList,
    EngineLoad,
    Finished,
    ListEngines,
    SessionEnded,
    SessionStarted,
    SessionTouched,
    StartSession,
    SubmitCall,
    TouchSession,
)

Request = StartSession | TouchSession | EndSession | SubmitCall | CancelCalls | ListEngines
REQUESTS: Decoder[Request] = Decoder(Request)
SUBJECTS = ("autellix.sessions.*", subjects.CALLS_SUBMIT, subjects.CALLS_CANCEL, subjects.ENGINES_LIST)

Script = Callable[[SubmitCall, CallId], list[Message]]


class Pipeline:
    """Speaks the services' side of the protocol; `script` decides the frames of each call."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count(1)
        self.script: Script = self.echo
        self.heard: list[Request] = []
        self._news = asyncio.Condition()

    @staticmethod
    def accepted(call: SubmitCall, call_id: CallId) -> Accepted:
        """Return the frame that takes a call in."""
        return Accepted(
            call_id=call_id,
            program_id=call.program_id or ProgramId("alone"),
            thread_id=call.thread_id or ThreadId("main"),
        )

    @staticmethod
    def chunk(call_id: CallId, seq: int, text: str) -> Chunk:
        """Return a frame with one piece of text."""
        return Chunk(call_id=call_id, seq=seq, data=[{"choices": [{"index": 0, "delta": {"content": text}}]}])

    @staticmethod
    def finished(call_id: CallId, seq: int, text: str | None = None) -> Finished:
        """Return the last frame of an answered call, with the response unless that was streamed."""
        call = CallFinished(
            call_id=call_id, program_id=ProgramId("p"), thread_id=ThreadId("main"), at_ms=2.0, arrival_at_ms=1.0
        )
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        response = None if text is None else {"choices": [choice], "usage": {"completion_tokens": 1}}
        return Finished(call_id=call_id, seq=seq, call=call, response=response)

    def echo(self, call: SubmitCall, call_id: CallId) -> list[Message]:
        """Answer with the last message, in one piece or word by word."""
        text: str = call.body["messages"][-1]["content"]
        if not call.body["stream"]:
            return [self.accepted(call, call_id), self.finished(call_id, 1, text)]
        words = [self.chunk(call_id, seq, word) for seq, word in enumerate(text.split(), start=1)]
        return [self.accepted(call, call_id), *words, self.finished(call_id, len(words) + 1)]

    async def answer(self, msg: Msg) -> None:
        """Answer one request."""
        request = REQUESTS.decode(msg.data)
        for message in self._answers(request):
            await self._client.publish(msg.reply, encode(message))
        async with self._news:
            self.heard.append(request)
            self._news.notify_all()

    def _answers(self, request: Request) -> list[Message]:
        match request:
            case StartSession():
                return [
                    SessionStarted(program_id=ProgramId(f"p{next(self._numbers)}"), ttl_ms=request.ttl_ms or 60_000)
                ]
            case TouchSession():
                return [SessionTouched(program_id=request.program_id, ttl_ms=60_000)]
            case EndSession():
                return [SessionEnded(program_id=request.program_id)]
            case CancelCalls():
                return [CancelAccepted()]
            case ListEngines():
                return [EngineList(engines=[ENGINE])]
            case SubmitCall():
                return self.script(request, CallId(f"c{next(self._numbers)}"))

    def all(self, kind: type[Any]) -> list[Any]:
        """Return the requests of one kind, oldest first."""
        return [request for request in self.heard if isinstance(request, kind)]

    async def first(self, kind: type[Any]) -> Any:
        """Return the first request of one kind, waiting for it."""
        async with self._news:
            await self._news.wait_for(lambda: self.all(kind))
        return self.all(kind)[0]


ENGINE = EngineLoad(
    engine_id=EngineId("engine-0"),
    incarnation=Incarnation("i"),
    models=("small",),
    policy="atlas",
    state="ready",
    slots=4,
    calls=0,
    running=0,
    waiting=0,
    kv_usage=0.0,
    steps=0,
    at_ms=0.0,
)


@pytest.fixture
async def pipeline(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pipeline]:
    """Return a pipeline that echoes, on the server that programs use by default."""
    monkeypatch.setenv("AUTELLIX_NATS_URL", nats_url)
    client = await nats.connect(nats_url)
    pipeline = Pipeline(client)
    for subject in SUBJECTS:
        await client.subscribe(subject, cb=pipeline.answer)
    await client.flush()
    yield pipeline
    await client.close()


@pytest.fixture(scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """Return a whole running stack whose two engines are simulated."""
    simulated = ("engine_worker.backend=simulated",)
    plan = Plan(model="tiny", engines=2, port=0, overrides=simulated, log_dir=tmp_path_factory.mktemp("logs"))
    async with Stack(plan) as stack:
        yield stack
