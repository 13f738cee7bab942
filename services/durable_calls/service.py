"""Durable calls on a bus: takes them in, has them kept, tries them, tells their results.

Every step leaves behind what the next one needs, and may be done again: a process that dies between two of them, or
with everything else, has its call delivered anew. The order is: record, queue, `accepted`, try, result, told, taken off
the queue. Any number of instances may run.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Self

import structlog

from autellix.services.bus import Delivery, Handler
from autellix.services.config import DurableCallsSettings
from autellix.services.core import Listen
from autellix.services.durable_calls.attempts import Attempts
from autellix.services.durable_calls.core import DurableCalls
from autellix.services.durable_calls.intake import Intake
from autellix.services.durable_calls.listens import LISTENS
from autellix.services.durable_calls.reporting import Done, report
from autellix.services.durable_calls.results import Results
from autellix.services.durable_calls.store import TROUBLE, Store
from autellix.services.durable_calls.work import Workers
from autellix.services.nats_bus import NatsBus
from autellix.services.runner import wall_ms

log = structlog.get_logger()

DRAIN_S: Final = 20.0
"""How long tries may end when the service is stopped; below systemd's TimeoutStopSec."""
REPORT_S: Final = 2.0
"""Between two heartbeats."""


class DurableCallsService:
    """One instance, `async with`."""

    def __init__(
        self,
        bus: NatsBus,
        settings: DurableCallsSettings,
        *,
        now_ms: Callable[[], float] = wall_ms,
        drain_s: float = DRAIN_S,
        report_s: float = REPORT_S,
    ) -> None:
        core = DurableCalls(settings)
        self._bus = bus
        self._drain_s = drain_s
        self._report_s = report_s
        self.store = Store(bus, settings)
        self._now_ms = now_ms
        self._done = Done()
        self.attempts = Attempts(bus, settings.accept_s, self._done)
        self.results = Results(bus, self.store, core, self._done, now_ms)
        self._intake = Intake(self.store, core, self.results, self.attempts, now_ms)
        self._workers = Workers(self.store, core, self.results, self.attempts, settings, now_ms)
        self._handling: set[asyncio.Task[None]] = set()
        self._life = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Listen, and work on the queue; without JetStream, once it is there."""
        try:
            await self.store.open()
        except TROUBLE as error:
            log.error("durable calls are refused", error=repr(error))  # noqa: TRY400 - the text says it all
        async with AsyncExitStack() as life:
            await life.enter_async_context(self.attempts)
            self._workers.start()
            life.push_async_callback(self._workers.stop, self._drain_s)
            life.push_async_callback(self._handled)
            for listen in LISTENS:
                heard = await self._bus.subscribe(listen.subject, self._receiver(listen), queue=listen.queue)
                life.push_async_callback(heard.unsubscribe)
            await self._bus.flush()
            life.callback(asyncio.create_task(self.store.keep_open()).cancel)
            life.callback(
                asyncio.create_task(report(self._bus, self.store, self._done, self._now_ms, self._report_s)).cancel
            )
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take nothing new, and let what is under way end, for a while."""
        await self._life.aclose()

    def _receiver(self, listen: Listen) -> Handler:
        """Return what handles each message in a task of its own: JetStream is waited for."""

        async def receive(delivery: Delivery) -> None:
            task = asyncio.create_task(self._intake.handle(listen, delivery))
            self._handling.add(task)
            task.add_done_callback(self._handling.discard)

        return receive

    async def _handled(self) -> None:
        """Return when what has arrived is handled, or that takes too long."""
        if self._handling:
            _, late = await asyncio.wait(self._handling, timeout=self._drain_s)
            for task in late:
                task.cancel()
