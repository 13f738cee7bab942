"""A vLLM engine as an executor, with vLLM's application and scheduler played by the test."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.responses import JSONResponse

from autellix.engine.executor import (
    Account,
    Answer,
    EngineCall,
    EngineGoneError,
    EngineInfo,
    Held,
    Load,
    Output,
    Preempted,
    ProgramOver,
    Refusal,
    Resumed,
    Started,
    Turn,
)
from autellix.engine.vllm_adapter import executor as module
from autellix.engine.vllm_adapter.executor import VllmExecutor
from autellix.engine.vllm_adapter.facts import give_facts
from autellix.engine.vllm_adapter.notices import NoticeReceiver, NoticeSender
from autellix.engine.vllm_adapter.reports import Busy, Ended, Report, ReportReceiver, ReportSender
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

CALL = CallId("call-1")
ENDED = Ended(
    call_id=CALL,
    service_ms=40.0,
    wait_ms=5.0,
    held_ms=3.0,
    preemptions=1,
    queues=(0, 1),
    prompt_tokens=3,
    cached_tokens=2,
    output_tokens=9,
)
MEASURED = Account(40.0, 5.0, 3.0, 1, (0, 1), 3, 2, 9)


async def in_words(_raw: Any, error: Exception) -> JSONResponse:
    """Word an error, as vLLM's application does."""
    return JSONResponse({"error": {"message": str(error), "param": "logit_bias", "code": 400}}, status_code=400)


class Engine:
    """vLLM's side: an application that answers as the test says, and a scheduler's end of the reports."""

    def __init__(self, folder: Path) -> None:
        self.receiver = ReportReceiver(folder / "reports")
        self.scheduler = ReportSender(str(self.receiver.path))
        self.notices = NoticeReceiver(str(folder / "notices"))
        self.sender = NoticeSender(str(folder / "notices"))
        self.errored = False
        self.dead_error = RuntimeError("dead")
        self.status, self.answer = 200, {"ok": True}
        self.before_the_answer: Callable[[], None] = lambda: self.tell(ENDED)
        self.request: dict[str, Any] = {}
        self.extra_args: dict[str, Any] | None = None
        self.exception_handlers = {ValueError: in_words}
        self.refused: Exception | None = None

    async def add_request(self) -> None:
        """Take a request in, or do not."""
        if self.refused:
            raise self.refused

    def generate(self, _prompt: str, sampling_params: Any, _request_id: str) -> None:
        """Note what the scheduler would be given."""
        self.extra_args = sampling_params.extra_args

    def tell(self, report: Report) -> None:
        """Let the scheduler report."""
        self.scheduler.note(report)
        self.scheduler.send()

    async def __call__(self, _scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve one request."""
        self.request = json.loads((await receive())["body"])
        self.generate("Hi", SimpleNamespace(extra_args=self.request.get("vllm_xargs")), "request-1")
        await self.add_request()
        self.before_the_answer()
        await send({"type": "http.response.start", "status": self.status})
        await send({"type": "http.response.body", "body": json.dumps(self.answer).encode()})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """Return vLLM's side."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Path(folder))
        yield engine
        engine.receiver.close()
        engine.scheduler.close()
        engine.notices.close()
        engine.sender.close()


@pytest.fixture
def executor(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> VllmExecutor:
    """Return the executor; it does not wait long for a report."""
    monkeypatch.setattr(module, "REPORT_WAIT_S", 0.05)
    give_facts(engine)
    return VllmExecutor(engine, engine, EngineInfo(("m",), "atlas", 1, 0, 100), engine.receiver, engine.sender)


async def run(executor: VllmExecutor, **fields: Any) -> list[Output]:
    """Return everything that one call brings."""
    body = {"model": "m", "messages": [], **fields}
    facts = ProgramFacts(service_ms=7.0)
    text = msgspec.json.encode(body)
    call = EngineCall(CALL, ProgramId("p"), ThreadId("main"), "/v1/chat/completions", text, stream=False, program=facts)
    return [output async for output in executor.run(call)]


async def test_refusal_that_a_stream_loses(executor: VllmExecutor, engine: Engine) -> None:
    """What the engine does not take in is refused in the application's words, also where its endpoint lost them."""
    engine.refused = ValueError("no such id")
    (found,) = await run(executor)

    assert isinstance(found, Refusal)
    assert (found.status, found.error.message, found.error.param) == (400, "no such id", "logit_bias")


async def test_failure_that_is_no_clients(executor: VllmExecutor, engine: Engine) -> None:
    """What the application has no words for is raised, for the worker to end the call."""
    engine.refused = KeyError("odd")
    with pytest.raises(KeyError, match="odd"):
        await run(executor)


async def test_engine_that_dies_during_a_call(executor: VllmExecutor, engine: Engine) -> None:
    """Whatever the application makes of its engine's death, the call hears of the death."""
    engine.refused, engine.errored = AttributeError("server"), True
    with pytest.raises(EngineGoneError, match="dead"):
        await run(executor)


async def test_engine_whose_death_is_put_into_words(executor: VllmExecutor, engine: Engine) -> None:
    """An answer of the application that an error happened is none, when what happened is that the engine died."""

    def die() -> None:
        engine.errored = True

    error: Any = {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}
    engine.status, engine.answer, engine.before_the_answer = 500, {"error": error}, die
    with pytest.raises(EngineGoneError, match="dead"):
        await run(executor)


async def test_full_context(executor: VllmExecutor, engine: Engine) -> None:
    """A prompt as long as the context is refused with the true limit, not with what vLLM computed from it."""
    text = "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"
    error: Any = {"message": text, "param": "max_tokens", "code": 400}
    engine.status, engine.answer = 400, {"error": error}
    engine.before_the_answer = lambda: None
    (found,) = await run(executor)

    assert isinstance(found, Refusal)
    assert (found.status, found.error.code) == (400, "context_length_exceeded")
    assert "100 tokens" in found.error.message


async def test_account(executor: VllmExecutor) -> None:
    """A call's account is what the scheduler reported, and can be had once."""
    assert await run(executor) == [Answer({"ok": True})]
    assert await executor.account(CALL) == MEASURED
    assert await executor.account(CALL) == Account()
    assert not executor._accounts


async def test_report_that_comes_late(executor: VllmExecutor, engine: Engine) -> None:
    """An account is waited for: an aborted call's report comes after its end."""
    engine.before_the_answer = lambda: None
    await run(executor)
    waiting = asyncio.create_task(executor.account(CALL))
    await asyncio.sleep(0)
    engine.tell(ENDED)
    executor.take_reports()

    assert await waiting == MEASURED


async def test_report_that_is_lost(executor: VllmExecutor, engine: Engine) -> None:
    """A report that never comes is not waited for without end."""
    engine.before_the_answer = lambda: None
    await run(executor)

    assert await executor.account(CALL) == Account()
    assert not executor._accounts


@pytest.mark.parametrize(("ran", "expected"), [(True, MEASURED), (False, Account())])
async def test_refused(executor: VllmExecutor, engine: Engine, ran: bool, expected: Account) -> None:  # noqa: FBT001
    """A refused call is charged for what it ran, and is not waited for if it never did."""
    engine.status, engine.answer = 400, {"error": {"message": "no"}}  # type: ignore[dict-item]
    engine.before_the_answer = (lambda: engine.tell(ENDED)) if ran else lambda: None
    (found,) = await run(executor)

    assert isinstance(found, Refusal)
    async with asyncio.timeout(0.04):
        assert await executor.account(CALL) == expected


async def test_facts_cannot_be_forged(executor: VllmExecutor, engine: Engine) -> None:
    """The scheduler gets the program's facts, whatever the client puts in their place; its own arguments stay."""
    await run(executor, vllm_xargs={"autellix_service_ms": 0.0, "autellix_new": 1, "mine": "x"})

    assert engine.extra_args is not None
    assert engine.extra_args["autellix_service_ms"] == 7.0
    assert engine.extra_args["autellix_call_id"] == "call-1"
    assert engine.extra_args["mine"] == "x"
    assert "autellix_new" not in engine.extra_args


async def test_each_call_has_its_own_facts(executor: VllmExecutor, engine: Engine) -> None:
    """Facts go with their call and no further: what is asked of the engine outside of calls has none."""
    await asyncio.create_task(run(executor))
    engine.generate("Hi", SimpleNamespace(extra_args=None), "request-2")

    assert engine.extra_args is None


async def test_turns_and_busy(executor: VllmExecutor, engine: Engine) -> None:
    """The worker is told each turn of a call, and how busy the engine last said it was."""
    turns: list[Turn] = [Held(CALL, "plas", 1, 64, 32), Started(CALL, 2.5), Preempted(CALL), Resumed(CALL)]
    load = Load(running=1, waiting=2, kv_usage=0.5, steps=3, programs_held=4)
    told: list[Turn] = []
    executor.on_turn = told.append
    for turn in turns:
        engine.tell(turn)
    engine.tell(Busy(load=load))

    assert executor.load() == load
    assert told == turns


async def test_notices(executor: VllmExecutor, engine: Engine) -> None:
    """What the scheduler had no room for while it was idle comes with a later heartbeat."""
    notices = [ProgramOver(program_id=ProgramId(f"p{number}")) for number in range(100)]
    for notice in notices:
        executor.tell(notice)
    found = engine.notices.receive()
    assert 0 < len(found) < len(notices)
    executor.load()

    assert notices == found + engine.notices.receive()


async def test_dead_engine(executor: VllmExecutor, engine: Engine) -> None:
    """A dead engine has no load; the error says why it died."""
    engine.errored = True

    with pytest.raises(EngineGoneError, match="dead"):
        executor.load()
