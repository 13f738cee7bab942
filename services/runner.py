"""Gives a pure core a bus, a clock, logs and a life.

`CoreRunner` hangs one core on one bus. `run_process` is the life of every service process: wait for NATS, start, say
ready, work until SIGTERM, drain, leave.
"""

import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog
import uvloop

from autellix.schemas import tenants
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import MalformedMessageError, is_json
from autellix.schemas.messages import Failed
from autellix.schemas.nats_access import Access
from autellix.services import logs, notify, tracing
from autellix.services.bus import Bus, BusDownError, Delivery, Handler, Subscription
from autellix.services.config import NatsSettings, StartError
from autellix.services.core import Core, Listen, Out, Reply
from autellix.services.lease import LostLeaseError, always
from autellix.services.nats_bus import NatsBus, connect
from autellix.services.publishing import NOTHING, error_facts, ids_of, publish

log = structlog.get_logger()

VERSION = "0.1.0"
NO_INBOX = ("autellix.", "$")
"""How no inbox begins: an answer there would be taken for something that its sender may not say."""


def wall_ms() -> float:
    """Return the wall clock, in milliseconds."""
    return time.time() * 1000


@dataclass(order=True)
class Waiting:
    """A delivery that waits for its turn."""

    rank: int
    number: int
    listen: Listen = field(compare=False)
    delivery: Delivery = field(compare=False)


class CoreRunner:
    """One core on one bus, `async with`: entering subscribes, leaving drains.

    One task hands deliveries to the core, those of earlier `listens` first. Between subscriptions NATS keeps no order;
    with the events listed before the requests, a client that answers a finished call at once with its next one finds
    the finished call counted.
    """

    def __init__(
        self,
        bus: Bus,
        core: Core,
        listens: Iterable[Listen],
        *,
        now_ms: Callable[[], float] = wall_ms,
        tick_s: float = 0.5,
        before: Callable[[], Awaitable[None]] | None = None,
        may_speak: Callable[[], Awaitable[bool]] = always,
    ) -> None:
        """Prepare; `before` is done when it listens and does not work yet, and `may_speak` asked before each word."""
        self._bus = bus
        self._core = core
        self._listens = tuple(listens)
        self._now_ms = now_ms
        self._tick_s = tick_s
        self._subscriptions: list[Subscription] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: asyncio.PriorityQueue[Waiting] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._before = before
        self._may_speak = may_speak

    @property
    def busy(self) -> bool:
        """Whether something that arrived waits for its turn."""
        return not self._waiting.empty()

    async def __aenter__(self) -> Self:
        """Subscribe to everything the service listens to; on return the bus knows."""
        for rank, listen in enumerate(self._listens):
            receive = self._receiver(rank, listen)
            self._subscriptions.append(await self._bus.subscribe(listen.subject, receive, queue=listen.queue))
        await self._bus.flush()
        if self._before:
            await self._before()
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._tick_forever())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take nothing new, and handle what has arrived."""
        for subscription in self._subscriptions:
            await subscription.unsubscribe()
        await self._waiting.join()
        for task in self._tasks:
            task.cancel()

    def _receiver(self, rank: int, listen: Listen) -> Handler:
        async def receive(delivery: Delivery) -> None:
            self._waiting.put_nowait(Waiting(rank, next(self._numbers), listen, delivery))

        return receive

    async def _work(self) -> None:
        while True:
            next_one = await self._waiting.get()
            try:
                if await self._may_speak():
                    await self._handle(next_one.listen, next_one.delivery)
            finally:
                self._waiting.task_done()

    async def _handle(self, listen: Listen, delivery: Delivery) -> None:
        """Hand one delivery to the core; whatever is wrong with it is answered and logged, and ends there."""
        reply = reply_to(delivery)
        if listen.answered and reply is None:
            log.warning("request without a reply subject", subject=delivery.subject)
            return
        try:
            message = listen.decoder.decode(delivery.data)
        except MalformedMessageError as error:
            log.warning("malformed message", subject=delivery.subject, error=str(error))
            await self.refuse(reply, 400, str(error), "invalid_request_error")
            return
        span = _span(delivery) if delivery.trace else None
        failed = ""
        try:
            await self.publish(self._core.handle(message, self._now_ms(), reply), ids_of(message))
        except Exception as error:
            failed = type(error).__name__
            log.exception("message failed", subject=delivery.subject, **ids_of(message))
            await self.refuse(reply, 500, f"internal error: {failed}", "server_error")
        if span:
            span.end({}, error=failed)

    async def refuse(self, reply: Reply | None, status: int, text: str, kind: str) -> None:
        """Answer a request that could not be handled; why is logged already."""
        if reply:
            failed = Failed(status=status, error=ErrorBody(message=text[:1000], type=kind))
            await publish(self._bus, Out(reply.subject, failed, reply.as_json))

    async def publish(self, outs: Iterable[Out], ids: Mapping[str, str] = NOTHING) -> None:
        """Publish what a core decided, in order, and log what it refused of a message that names `ids`."""
        for out in outs:
            if isinstance(out.message, Failed):
                refused = out.message
                named = {**ids, **ids_of(refused)}
                log.warning("refused", status=refused.status, **error_facts(refused.error), **named)
            await publish(self._bus, out, ids)

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            try:
                if self._bus.connected and await self._may_speak():  # nothing is heard: time passes for nobody
                    await self.publish(self._core.tick(self._now_ms()))
            except Exception:
                log.exception("tick failed")


def reply_to(delivery: Delivery) -> Reply | None:
    """Return where the sender waits for an answer, None if he does not, or wants it where services talk."""
    if not delivery.reply:
        return None
    if delivery.reply.startswith(NO_INBOX):
        log.warning("answer asked for where services talk", subject=delivery.subject, reply=delivery.reply)
        return None
    return Reply(delivery.reply, is_json(delivery.data), delivery.trace, tenants.asked_by(delivery.subject))


def _span(delivery: Delivery) -> tracing.Span:
    """Begin the span of one hop (OpenTelemetry's conventions for messaging)."""
    attributes = {
        "messaging.system": "nats",
        "messaging.destination.name": delivery.subject,
        "messaging.operation.type": "process",
    }
    return tracing.span(f"process {delivery.subject}", delivery.trace, attributes)


Application = Callable[[NatsBus], AbstractAsyncContextManager[Any]]


class StopSignal:
    """SIGTERM or SIGINT, waited for; entering installs the handlers."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def __enter__(self) -> Self:
        """Catch the signals."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self.event.set)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(name)


async def live(name: str, nats: NatsSettings, application: Application) -> None:
    """Live the life of a service process until it is told to stop: at once while it starts, else by draining."""
    with StopSignal() as stop:
        ready = asyncio.Event()
        life = asyncio.create_task(_serve(name, nats, application, ready, stop.event))
        stopping = asyncio.create_task(stop.event.wait())
        await asyncio.wait({life, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ready.is_set():
            life.cancel()
        await asyncio.wait({life})
    if not life.cancelled():
        life.result()
    log.info("stopped")


async def _serve(
    name: str, nats: NatsSettings, application: Application, ready: asyncio.Event, stop: asyncio.Event
) -> None:
    """Wait for NATS, start, say ready, work until `stop`, drain."""
    log.info("waiting for nats", url=nats.url)
    nkey = str(Path(nats.nkeys) / f"{name}.nk") if nats.nkeys else ""
    access = Access(nkey, nats.ca, nats.certificate, nats.certificate_key)
    bus = await connect(nats.url, name=name, access=access)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        await stack.enter_async_context(application(bus))
        await bus.announce(f"autellix-{name}", VERSION)
        await bus.flush()
        ready.set()
        notify.notify("READY=1")
        log.info("ready")
        await _until(stop, bus)
        notify.notify("STOPPING=1")
        log.info("draining")


async def _until(stop: asyncio.Event, bus: NatsBus) -> None:
    """Return when it is time to stop.

    Raises:
        BusDownError: when the bus is lost: to live on would be to wait for nothing.
    """
    stopping, losing = asyncio.create_task(stop.wait()), asyncio.create_task(bus.lost())
    await asyncio.wait({stopping, losing}, return_when=asyncio.FIRST_COMPLETED)
    for task in (stopping, losing):
        task.cancel()
    if not stop.is_set():
        raise BusDownError(await losing)


def run_process(name: str, nats: NatsSettings, log_level: str, application: Application) -> None:
    """Run a service process and return when it has drained; one that fails is one log line and status 1."""
    logs.setup(name, log_level)
    try:
        tracing.setup(name)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(live(name, nats, application))
    except StartError as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400 - the text says it all
        sys.exit(1)
    except LostLeaseError as error:
        log.error("stood down", error=str(error))  # noqa: TRY400 - the same
        sys.exit(1)
    except Exception as error:
        log.exception("failed", error=repr(error))
        sys.exit(1)
    finally:
        tracing.close()
