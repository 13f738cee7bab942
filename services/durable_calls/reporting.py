"""The heartbeat of an instance: what it has done, and how much is left to do."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from autellix.schemas import subjects
from autellix.schemas.messages import DurableLoad, Failed
from autellix.services.core import Out
from autellix.services.durable_calls.core import Result
from autellix.services.durable_calls.store import TROUBLE, Store
from autellix.services.nats_bus import NatsBus
from autellix.services.publishing import publish


@dataclass
class Done:
    """What one instance has done since its start."""

    tries: int = 0
    trying: int = 0
    """Of these, those that have not ended."""
    finished: int = 0
    failed: int = 0
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)

    def ended(self, result: Result) -> None:
        """Count a result that was kept."""
        if isinstance(result, Failed):
            self.failed += 1
        else:
            self.finished += 1


async def report(bus: NatsBus, store: Store, done: Done, now_ms: Callable[[], float], every_s: float) -> None:
    """Say it again and again, for ever."""
    pending = 0
    while True:
        available = store.is_open and bus.connected
        if available:
            try:
                pending = await store.pending()
            except TROUBLE as error:
                store.failed(error)
                available = False
        load = DurableLoad(
            instance=done.instance,
            available=available,
            pending=pending,
            trying=done.trying,
            tries=done.tries,
            finished=done.finished,
            failed=done.failed,
            at_ms=now_ms(),
        )
        if bus.connected:
            await publish(bus, Out(subjects.event(load), load))
        await asyncio.sleep(every_s)
