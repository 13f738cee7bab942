"""The queue's calls, worked on one after the other by as many workers as there may be calls in the pipeline."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from autellix.schemas.codec import Decoder, MalformedMessageError
from autellix.schemas.messages import Failed
from autellix.services.config import DurableCallsSettings
from autellix.services.durable_calls.attempts import Attempts
from autellix.services.durable_calls.core import DurableCalls, Job, Later, Result, Tell, Try
from autellix.services.durable_calls.results import AGAIN_S, Results
from autellix.services.durable_calls.store import TROUBLE, Store

log = structlog.get_logger()

FETCH_S: Final = 5.0

_JOBS: Decoder[Job] = Decoder(Job)


class Workers:
    """The workers of one instance."""

    def __init__(
        self,
        store: Store,
        core: DurableCalls,
        results: Results,
        attempts: Attempts,
        settings: DurableCallsSettings,
        now_ms: Callable[[], float],
    ) -> None:
        self._store = store
        self._core = core
        self._results = results
        self._attempts = attempts
        self._settings = settings
        self._now_ms = now_ms
        self._stopping = False
        self._tasks: set[asyncio.Task[Any] | None] = set()
        self._busy: set[asyncio.Task[Any] | None] = set()
        """Of those, the ones that have a call."""
        self._keys: set[str] = set()
        """Of those calls."""

    def start(self) -> None:
        """Begin."""
        self._tasks = {asyncio.create_task(self._work_forever()) for _ in range(self._settings.concurrency)}

    async def stop(self, drain_s: float) -> None:
        """Take no more calls; those that take longer than `drain_s` are tried anew, in another life or instance."""
        self._stopping = True
        tasks = [task for task in self._tasks if task]
        for task in tasks:
            if task not in self._busy:
                task.cancel()
        await asyncio.wait(tasks, timeout=drain_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work_forever(self) -> None:
        pulled = None
        try:
            while not self._stopping:
                pulled = pulled or await self._store.pull()
                await self._next(pulled)
        finally:
            if pulled:
                with contextlib.suppress(*TROUBLE):
                    await pulled.unsubscribe()

    async def _next(self, pulled: JetStreamContext.PullSubscription) -> None:
        """Work on the next call, if there is one soon."""
        try:
            (message,) = await pulled.fetch(1, timeout=FETCH_S)
            await self._work(message)
        except nats.errors.TimeoutError:
            return
        except TROUBLE as error:  # what was not acknowledged comes again
            log.warning("queue is out of reach", error=repr(error))
            self._store.failed(error)
            await asyncio.sleep(AGAIN_S)
        except Exception:
            log.exception("durable call failed")

    async def _work(self, message: Msg) -> None:
        try:
            job = _JOBS.decode(message.data)
        except MalformedMessageError as error:
            log.error("unreadable durable call", error=str(error))  # noqa: TRY400 - the text says it all
            await message.term()
            return
        if job.key in self._keys:  # it was thought to be lost, and is acknowledged when that ends
            return
        self._keys.add(job.key)
        self._busy.add(asyncio.current_task())
        try:
            async with self._alive(message):
                pause_s = await self._step(job, message.metadata.num_delivered or 1)
        except asyncio.CancelledError:
            await message.nak()
            raise
        finally:
            self._busy.discard(asyncio.current_task())
            self._keys.discard(job.key)
        await self._done(message, pause_s)

    async def _done(self, message: Msg, pause_s: float | None) -> None:
        """Take a call off the queue, or let it come again after a pause."""
        if pause_s is None:
            await message.ack()
        else:
            await message.nak(delay=max(pause_s, 0.01))

    async def _step(self, job: Job, deliveries: int) -> float | None:
        """Work on a call, and return the pause before it is to come again; None: it is done."""
        known = await self._store.read(job.key)
        step = self._core.delivered(job, known.record, self._now_ms())
        if isinstance(step, Tell):  # whoever wrote it may have died before it was told
            await self._results.tell(step.record)
        if step is None or isinstance(step, Tell):
            return None
        end: Result | Later = await self._tried(job, step, deliveries) if isinstance(step, Try) else step
        if isinstance(end, Later):
            return end.pause_s
        await self._results.end(job.key, job.nonce, end)
        return None

    async def _tried(self, job: Job, step: Try, deliveries: int) -> Result | Later:
        call = job.call
        end = await self._attempts.run(
            job.key, step.request, tenant=call.tenant, trace=call.trace, within_s=step.within_s
        )
        decided = self._core.tried(job, end, self._now_ms(), deliveries)
        if isinstance(end, Failed):
            again = decided.pause_s if isinstance(decided, Later) else None
            log.warning("durable call failed", key=job.key, status=end.status, code=end.error.code, again_in_s=again)
        return decided

    @contextlib.asynccontextmanager
    async def _alive(self, message: Msg) -> AsyncIterator[None]:
        """Say now and then that a call is being worked on."""

        async def say() -> None:
            while True:
                await asyncio.sleep(self._settings.heartbeat_s)
                with contextlib.suppress(*TROUBLE):
                    await message.in_progress()

        saying = asyncio.create_task(say())
        try:
            yield
        finally:
            saying.cancel()
