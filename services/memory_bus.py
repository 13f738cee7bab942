"""The bus in memory: NATS's subjects, wildcards and queue groups, delivered in order by one task a subscription."""

import asyncio
import contextlib
import itertools
from collections import defaultdict
from dataclasses import dataclass, field

import structlog

from autellix.services.bus import BusDownError, Delivery, Handler, PayloadTooLargeError, matches

log = structlog.get_logger()


@dataclass(eq=False)
class MemorySubscription:
    """One interest: a queue of deliveries and the task that hands them over."""

    hub: "MemoryHub"
    pattern: str
    group: str
    handler: Handler
    pending: asyncio.Queue[Delivery] = field(default_factory=asyncio.Queue)
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Hand over deliveries until cancelled."""
        while True:
            delivery = await self.pending.get()
            try:
                await self.handler(delivery)
            except Exception:  # as on NATS: one message must not end the subscription
                log.exception("handler failed", subject=delivery.subject)
            finally:
                self.pending.task_done()

    async def unsubscribe(self) -> None:
        """Stop receiving; what has arrived is still handled."""
        if self in self.hub.subscriptions:
            self.hub.subscriptions.remove(self)
        await self.pending.join()
        if self.task:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task


class MemoryHub:
    """What stands for the server: every `MemoryBus` on one hub hears the others."""

    def __init__(self) -> None:
        self.subscriptions: list[MemorySubscription] = []
        self._turns: dict[str, int] = defaultdict(int)

    def deliver(self, delivery: Delivery) -> None:
        """Queue a delivery for each subscriber, and for one of each queue group in turn."""
        groups: dict[str, list[MemorySubscription]] = defaultdict(list)
        for subscription in self.subscriptions:
            if matches(subscription.pattern, delivery.subject):
                if subscription.group:
                    groups[subscription.group].append(subscription)
                else:
                    subscription.pending.put_nowait(delivery)
        for group, members in groups.items():
            self._turns[group] += 1
            members[self._turns[group] % len(members)].pending.put_nowait(delivery)


class MemoryBus:
    """One client of a `MemoryHub`."""

    _names = itertools.count(1)

    def __init__(self, hub: MemoryHub, *, max_payload: int = 8 * 2**20) -> None:
        self.max_payload = max_payload
        self.reconnects = 0
        self._hub = hub
        self._own: list[MemorySubscription] = []
        self._open = True

    @property
    def connected(self) -> bool:
        """Whether the bus can be reached now."""
        return self._open

    async def publish(self, subject: str, data: bytes, *, reply: str = "", trace: str = "") -> None:
        """Send `data` to whoever is subscribed."""
        if not self._open:
            raise BusDownError("the bus is closed")
        if subject.split() != [subject]:
            raise ValueError(f"no subject: {subject!r}")
        if len(data) > self.max_payload:
            raise PayloadTooLargeError(f"{len(data)} bytes, limit {self.max_payload}")
        self._hub.deliver(Delivery(subject, data, reply, trace))

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> MemorySubscription:
        """Call `handler` for each message on `subject`, in order of arrival."""
        subscription = MemorySubscription(self._hub, subject, queue, handler)
        subscription.task = asyncio.create_task(subscription.run())
        self._hub.subscriptions.append(subscription)
        self._own.append(subscription)
        return subscription

    def new_inbox(self) -> str:
        """Return a subject that nobody else uses."""
        return f"_INBOX.m{next(self._names)}"

    async def flush(self) -> None:
        """Give every subscriber its turn."""
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Handle what has arrived and disconnect."""
        for subscription in self._own:
            await subscription.unsubscribe()
        self._own.clear()
        self._open = False
