"""Events that were not heard, since the bus was away: JetStream kept them.

Rules:
* Now and then a service notes the last event that is kept; once the server has answered, all before that has arrived.
* After the bus was away it takes in, before anything else, what was kept since then. Most of that it has heard already,
  so its core must take any event twice.
* Where JetStream is not, it goes on without. Where JetStream does not answer in time, too; it says so in the log, and
  tries again now and then.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import nats.errors
import structlog
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from autellix.schemas import subjects
from autellix.schemas.codec import EVENTS, MalformedMessageError
from autellix.schemas.messages import Event
from autellix.services.nats_bus import NatsBus

log = structlog.get_logger()

MARK_S: Final = 2.0
EVENTS_MAX: Final = 200_000
"""How many of the missed events are taken in, the latest."""
PATIENCE_S: Final = 10.0
TRY_S: Final = 0.5
LATER_S: Final = 30.0
LATER_PATIENCE_S: Final = 1.0
"""How often it is tried again, once patience was over, and for how long."""
BATCH: Final = 1000
NEXT_S: Final = 5.0
"""How long events that are known to be kept may take to come."""
TROUBLE: Final = (nats.errors.Error, OSError)
"""What JetStream may answer, or fail to."""


async def last_kept(bus: NatsBus) -> int:
    """Return the number of the last event that is kept."""
    info = await bus.jetstream().stream_info(subjects.EVENT_STREAM)
    return int(info.state.last_seq)


async def kept_after(bus: NatsBus, number: int, subject: str = "autellix.events.>") -> AsyncIterator[Event]:
    """Yield the events kept after one; who has seen them all. One that cannot be read, as of another version, is not.

    Raises:
        nats.errors.Error: when they do not come.
    """
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=number + 1, ack_policy=AckPolicy.NONE
    )
    pulled = await bus.jetstream().pull_subscribe(subject, stream=subjects.EVENT_STREAM, config=config)
    left = (await pulled.consumer_info()).num_pending or 0
    while left > 0:
        messages = await pulled.fetch(min(left, BATCH), timeout=NEXT_S)
        left -= len(messages)
        for message in messages:
            try:
                yield EVENTS.decode(message.data)
            except MalformedMessageError as error:
                log.warning("unreadable event", error=str(error))
    await pulled.unsubscribe()


class Missed:
    """What one service has missed."""

    def __init__(self, bus: NatsBus, subject: str) -> None:
        """Prepare to take in events of `subject`, which may be a pattern."""
        self._bus = bus
        self._subject = subject
        self._known: int | None = None
        """All events up to this one have arrived; None: there is no telling."""
        self._reconnects = bus.reconnects
        self._try_at_s = 0.0
        self._patience_s = PATIENCE_S

    @property
    def is_behind(self) -> bool:
        """Whether there may be what was not heard: the bus was away since all that was kept had been."""
        return self._bus.reconnects != self._reconnects

    @property
    def is_due(self) -> bool:
        """Whether it is time to take that in."""
        return self.is_behind and time.monotonic() >= self._try_at_s

    def has_heard(self, number: int) -> None:
        """Note that all events up to one are known."""
        self._known, self._reconnects = number, self._bus.reconnects

    async def mark_forever(self) -> None:
        """Note now and then what has arrived for certain."""
        while True:
            try:
                await self._mark()
            except TROUBLE:
                log.debug("no mark", exc_info=True)
            await asyncio.sleep(MARK_S)

    async def _mark(self) -> None:
        known = await last_kept(self._bus)
        await self._bus.flush()
        if not self.is_behind:
            self._known = known

    async def events(self) -> list[Event]:
        """Return what was kept since all is known to have arrived; nothing, if it does not come in time."""
        reconnects, events = self._bus.reconnects, list[Event]()
        try:
            async with asyncio.timeout(self._patience_s):
                if self._known is not None:
                    events = await self._fetched(self._known)
                    log.info("caught up", events=len(events))
        except TimeoutError:
            log.error("not all was heard", since=self._known)  # noqa: TRY400 - the text says it all
            self._try_at_s, self._patience_s = time.monotonic() + LATER_S, LATER_PATIENCE_S
            return []
        self._reconnects, self._patience_s = reconnects, PATIENCE_S
        return events

    async def _fetched(self, known: int) -> list[Event]:
        """Return what was kept after an event, as soon as the server tells."""
        while True:
            try:
                if self._bus.connected:
                    await self._bus.flush()  # from here on all is heard again
                    last = await last_kept(self._bus)
                    first = max(known, last - EVENTS_MAX)
                    events = [event async for event in kept_after(self._bus, first, self._subject)]
                    self._known = last
                    return events
            except TROUBLE as error:
                log.warning("cannot catch up yet", error=repr(error))
            await asyncio.sleep(TRY_S)
