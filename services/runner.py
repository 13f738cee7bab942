"""Gives a pure core a bus, a clock and logs: `CoreRunner` hangs one core on one bus."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import structlog

from autellix.schemas import tenants
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import MalformedMessageError, is_json
from autellix.schemas.messages import Event, Failed
from autellix.services import tracing
from autellix.services.bus import Bus, Delivery, Handler, Subscription
from autellix.services.core import Core, Listen, Out, Reply
from autellix.services.lease import always
from autellix.services.publishing import NOTHING, error_facts, ids_of, publish

log = structlog.get_logger()

BEHIND_S = 5.0
"""When a request has waited here for so long, what brings more work is refused; clients give up after ten seconds."""
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
    arrived_s: float = field(compare=False)


class Missed(Protocol):
    """What passed unheard while the bus was away (`missed.py`)."""

    @property
    def is_due(self) -> bool:
        """Whether there may be such."""
        ...

    async def events(self) -> Iterable[Event]:
        """Return it."""
        ...

    async def mark_forever(self) -> None:
        """Note what has arrived."""
        ...


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
        missed: Missed | None = None,
    ) -> None:
        """Prepare.

        Args:
            bus: Where it listens and speaks.
            core: What decides.
            listens: What it hears.
            now_ms: The clock.
            tick_s: How often it hears that time passes.
            before: Is done when it listens and does not work yet.
            may_speak: Is asked before each word.
            missed: What it missed: it hears that before anything else.
        """
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
        self._missed = missed
        self._catching_up = asyncio.Lock()
        self._held_up_until_s = 0.0
        """Time before that was not lost to what there is to do."""

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
        if self._missed:
            self._tasks.append(asyncio.create_task(self._missed.mark_forever()))
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
            self._waiting.put_nowait(Waiting(rank, next(self._numbers), listen, delivery, time.monotonic()))

        return receive

    async def _work(self) -> None:
        self._held_up_until_s = time.monotonic()
        while True:
            next_one = await self._waiting.get()
            try:
                await self._catch_up()
                if await self._may_speak():
                    if next_one.listen.brings_work and self._is_late(next_one):
                        await self._put_off(next_one)
                    else:
                        await self._handle(next_one.listen, next_one.delivery)
            finally:
                self._waiting.task_done()

    def _is_late(self, waiting: Waiting) -> bool:
        return time.monotonic() - max(waiting.arrived_s, self._held_up_until_s) > BEHIND_S

    async def _put_off(self, waiting: Waiting) -> None:
        """Refuse a request that would only add to what there is to do, without looking at it."""
        reply = reply_to(waiting.delivery)
        if reply:
            text = "There is more to do than can be done; try again later."
            error = ErrorBody(message=text, type="server_error", code="overloaded")
            failed = Failed(status=503, error=error, retry_after_s=BEHIND_S, retry_safe=True)
            await self.publish([Out(reply.subject, failed, reply.as_json)])

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

    async def _catch_up(self) -> None:
        """Hear what was missed while the bus was away."""
        if self._missed is None or not self._missed.is_due:
            return
        async with self._catching_up:
            if not self._missed.is_due:
                return
            for event in await self._missed.events():
                try:
                    await self.publish(self._core.handle(event, self._now_ms()), ids_of(event))
                except Exception:
                    log.exception("event passed over", **ids_of(event))
            self._held_up_until_s = time.monotonic()

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
                if self._bus.connected:  # else nothing is heard: time passes for nobody
                    await self._catch_up()
                    if await self._may_speak():
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
