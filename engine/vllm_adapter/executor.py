"""vLLM's AsyncLLM and its own OpenAI application, in this process, as an `Executor`.

Every endpoint's rules, chat template, tool parser and error text are vLLM's. What is added: the scheduler, each call's
facts on the way in (`facts.py`), and its account on the way out.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import structlog

from autellix.engine.executor import (
    Account,
    EngineCall,
    EngineGoneError,
    EngineInfo,
    Held,
    Load,
    Notice,
    OnTurn,
    Output,
    Preempted,
    Refusal,
    Resumed,
    Started,
    Turn,
)
from autellix.engine.vllm_adapter import asgi
from autellix.engine.vllm_adapter.endpoints import Endpoints
from autellix.engine.vllm_adapter.facts import serve
from autellix.engine.vllm_adapter.notices import NoticeSender
from autellix.engine.vllm_adapter.reports import Busy, Ended, Report, ReportReceiver
from autellix.engine.vllm_adapter.series import series
from autellix.schemas.ids import CallId
from autellix.schemas.openai import APIS, generates
from autellix.schemas.trace_context import HEADER

log = structlog.get_logger()

REPORT_WAIT_S = 2.0
"""An aborted call's report comes after the abort has reached the engine core, one step later at most."""

NO_ROOM = "max_tokens must be at least 1, got 0"
"""vLLM's words for a prompt that fills the context: that is what is left of it. Clients cannot ask for none."""


class VllmExecutor:
    """A vLLM engine that is up."""

    def __init__(self, app: Any, engine: Any, info: EngineInfo, reports: ReportReceiver, notices: NoticeSender) -> None:
        self.info = info
        self._endpoints = Endpoints(app, APIS)
        self._engine = engine
        self._reports = reports
        self._notices = notices
        self.on_turn: OnTurn = _nobody_listens
        self._accounts: dict[CallId, asyncio.Future[Account]] = {}
        self._busy = Load()

    async def run(self, call: EngineCall) -> AsyncGenerator[Output, None]:
        """Yield the call's pieces, then one answer or refusal; closing the iterator early aborts the call."""
        if generates(call.api):
            self._accounts[call.call_id] = asyncio.get_running_loop().create_future()
        refused = serve(call)
        headers: dict[str, str] = {"x-request-id": call.call_id}
        if call.trace:
            headers[HEADER] = call.trace
        parts = self._endpoints.exchange(call.api, call.body, headers)
        try:
            async with aclosing(parts):
                async for output in asgi.outputs(parts, stream=call.stream):
                    if isinstance(output, Refusal):
                        self._check_alive()  # the application may put a death into words of its own
                        self._refused(call.call_id)
                        yield await self._blamed(call, refused) or self._worded(output)
                    else:
                        yield output
        except Exception as error:
            if self._engine.errored:
                raise EngineGoneError(str(self._engine.dead_error)) from error
            blamed = await self._blamed(call, refused)
            if blamed is None:
                raise
            self._refused(call.call_id)
            yield blamed

    def _check_alive(self) -> None:
        if self._engine.errored:
            raise EngineGoneError(str(self._engine.dead_error))

    async def _blamed(self, call: EngineCall, refused: list[Exception]) -> Refusal | None:
        """Return why the engine did not take a call in, if its client is to blame."""
        if self._engine.errored:
            return None
        found = [await self._endpoints.refusal(call.api, error) for error in refused]
        known = next((each for each in found if each), None)
        return self._worded(known) if known else None

    def _worded(self, refusal: Refusal) -> Refusal:
        """Return a refusal in words that tell the client what is wrong."""
        if not refusal.error.message.startswith(NO_ROOM):
            return refusal
        limit = self.info.max_model_len
        text = f"This model's maximum context length is {limit} tokens. Your prompt has {limit}: no room for an answer."
        named = {"message": text, "param": "input_tokens", "code": "context_length_exceeded"}
        return Refusal(400, msgspec.structs.replace(refusal.error, **named))

    def _refused(self, call_id: CallId) -> None:
        """Expect no report of a call that vLLM refused, unless it has come: most never reach the scheduler."""
        self.take_reports()
        future = self._accounts.get(call_id)
        if future and not future.done():
            future.set_result(Account())

    async def account(self, call_id: CallId) -> Account:
        """Return what the scheduler measured for a call whose `run` is over; nothing if it never got that far."""
        self.take_reports()
        future = self._accounts.get(call_id)
        if future is None:
            return Account()
        try:
            return await asyncio.wait_for(future, REPORT_WAIT_S)
        except TimeoutError:
            log.warning("no account", call_id=call_id)  # its program is charged nothing for it
            return Account()
        finally:
            del self._accounts[call_id]

    def tell(self, notice: Notice) -> None:
        """Tell the scheduler something that concerns no single call; it takes it in before its next step."""
        self._notices.tell(notice)

    def load(self) -> Load:
        """Return how busy the engine is."""
        self._check_alive()
        self._notices.send()
        self.take_reports()
        return self._busy

    def series(self) -> str:
        """Return vLLM's series, in Prometheus's text format."""
        return series()

    def take_reports(self) -> None:
        """Take in what the scheduler has told."""
        for report in self._reports.receive():
            self._take(report)

    def _take(self, report: Report) -> None:
        match report:
            case Held() | Started() | Preempted() | Resumed():
                self.on_turn(report)
            case Ended():
                future = self._accounts.get(report.call_id)
                if future and not future.done():
                    future.set_result(_account(report))
            case Busy():
                self._busy = report.load


def _nobody_listens(_turn: Turn) -> None:
    """Stand in until the worker sets `on_turn`."""


def _account(report: Ended) -> Account:
    return Account(
        service_ms=report.service_ms,
        wait_ms=report.wait_ms,
        held_ms=report.held_ms,
        preemptions=report.preemptions,
        queues=report.queues,
        prompt_tokens=report.prompt_tokens,
        cached_tokens=report.cached_tokens,
        output_tokens=report.output_tokens,
    )
