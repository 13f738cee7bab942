"""vLLM's AsyncLLM and its own OpenAI application, in this process, as an `Executor`.

Every endpoint's rules, chat template, tool parser and error text are vLLM's. What is added: the scheduler, each call's
facts on the way in (`facts.py`), and its account on the way out.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

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
from autellix.schemas.ids import CallId
from autellix.schemas.openai import APIS, generates

log = structlog.get_logger()

REPORT_WAIT_S = 2.0
"""An aborted call's report comes after the abort has reached the engine core, one step later at most."""


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
        serve(call)
        parts = self._endpoints.exchange(call.api, call.body, {"x-request-id": call.call_id})
        async with aclosing(parts):
            async for output in asgi.outputs(parts, stream=call.stream):
                if isinstance(output, Refusal):
                    self._refused(call.call_id)
                yield output

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
        if self._engine.errored:
            raise EngineGoneError(str(self._engine.dead_error))
        self._notices.send()
        self.take_reports()
        return self._busy

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
