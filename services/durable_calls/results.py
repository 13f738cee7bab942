"""Results on their way out: kept first, and then told to whoever waits."""

import asyncio
from collections.abc import Callable
from typing import Final

import nats.errors
import structlog

from autellix.schemas.base import Message
from autellix.services.core import Out
from autellix.services.durable_calls.core import ANSWER_TOO_LARGE, DurableCalls, Record, Result
from autellix.services.durable_calls.reporting import Done
from autellix.services.durable_calls.store import TROUBLE, ConflictError, Store
from autellix.services.nats_bus import NatsBus
from autellix.services.publishing import publish

log = structlog.get_logger()

AGAIN_S: Final = 0.5
"""Between two attempts to reach JetStream."""
QUEUED_S: Final = 1.0
"""How long a result waits for its client to be told that the call was accepted."""
POLL_S: Final = 0.01


class Results:
    """The results of one instance."""

    def __init__(self, bus: NatsBus, store: Store, core: DurableCalls, done: Done, now_ms: Callable[[], float]) -> None:
        self._bus = bus
        self._store = store
        self._core = core
        self._done = done
        self._now_ms = now_ms

    async def end(self, key: str, nonce: str, result: Result) -> bool:
        """Have a result kept, however long that takes, and tell it; return whether it was the first."""
        polls = 0
        while True:
            try:
                record, revision = await self._store.read(key)
                if record is None or record.nonce != nonce or record.result:
                    return False
                if not record.queued and polls * POLL_S < QUEUED_S:
                    polls += 1
                    await asyncio.sleep(POLL_S)  # its client hears first that it is accepted
                    continue
                record = self._core.ended(record, result, self._now_ms())
                await self._store.write(key, record, revision)
            except ConflictError:
                continue
            except nats.errors.MaxPayloadError:
                result = ANSWER_TOO_LARGE
            except TROUBLE as error:
                log.warning("result not kept yet", key=key, error=repr(error))
                self._store.failed(error)
                await asyncio.sleep(AGAIN_S)
            else:
                self._done.ended(result)
                await self.tell(record)
                return True

    async def tell(self, record: Record) -> None:
        """Tell everybody who waits."""
        for waiting in record.waiting:
            await self.say(waiting.subject, record.result, as_json=waiting.as_json)

    async def say(self, subject: str, message: Message | None, *, as_json: bool) -> None:
        """Send a client something."""
        if message:
            await publish(self._bus, Out(subject, message, as_json))
