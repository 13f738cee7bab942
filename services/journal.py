"""What a service remembers over its own death: JetStream keeps the events, and a snapshot of each service's state.

Rules:
* A service that starts listens first, then takes in its snapshot and every event kept since, then works: what arrives
  meanwhile waits, and what comes both ways counts once, since cores take any event twice.
* A snapshot names the last event that its state knows, with all before it: the last one that was kept before the
  snapshot was made, once nothing that had arrived by then waited any more.
* When the connection was lost meanwhile, events may have passed unheard: until they are taken in (`missed.py`) no
  snapshot is written.
* A snapshot that cannot be read is set aside, said in the log, and made up for by all events that are kept. A service
  starts in any case: without JetStream, and with a full disk, it works and remembers nothing. What could not be read
  for another reason is not written over.
* One instance of a service is active (`standby.py`); that another one wrote is noticed, and its snapshot replaced.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog
from nats.js.kv import KeyValue

from autellix.schemas import subjects
from autellix.schemas.codec import MalformedMessageError
from autellix.schemas.messages import Event
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Core, Listen
from autellix.services.lease import always
from autellix.services.missed import TROUBLE, Missed, kept_after, last_kept
from autellix.services.nats_bus import NatsBus
from autellix.services.runner import CoreRunner, wall_ms
from autellix.services.snapshots import BUCKET, BUCKET_MAX_BYTES, Snapshots

log = structlog.get_logger()

SAVE_S: Final = 2.0
SAVE_SHARE: Final = 0.02
"""Of a service's time that snapshots may take; those of a hundred thousand programs are written less often."""
TRIES: Final = 5
TRY_S: Final = 1.0


class Recoverable(Core, Protocol):
    """A core that can be brought back."""

    def snapshot(self) -> bytes:
        """Return all that it knows."""
        ...

    def restore(self, snapshot: bytes, now_ms: float) -> None:
        """Know what a snapshot says.

        Raises:
            MalformedMessageError: when it is none.
        """
        ...

    def recover(self, event: Event, now_ms: float) -> None:
        """Take in an event that happened while it was not there, or that it knows already."""
        ...

    def recovered(self, now_ms: float) -> None:
        """Hear that no more such events come, for now."""
        ...


class Journal:
    """What one service remembers."""

    def __init__(self, bus: NatsBus, name: str, settings: ProcessTableSettings) -> None:
        self._bus = bus
        self._name = name
        self._settings = settings
        self._bucket: KeyValue | None = None
        self._snapshots: Snapshots | None = None
        self._known = 0
        """The last event that the core knows for certain, with all before it."""
        self.missed = Missed(bus, "autellix.events.>")
        """What passed unheard since."""
        self._whole = True
        """Whether all that could be remembered was: else what is there is not written over."""
        self._saved = b""

    @property
    def bucket(self) -> KeyValue | None:
        """Where snapshots are kept; None: nowhere."""
        return self._bucket

    async def open(self) -> None:
        """Have events and snapshots kept, if JetStream is there."""
        try:
            await self._tried(self._open)
        except TROUBLE as error:
            log.error("nothing is remembered", error=repr(error))  # noqa: TRY400 - the text says it all

    async def _open(self) -> None:
        limits = self._settings
        await self._bus.keep(
            subjects.EVENT_STREAM,
            subjects.KEPT_EVENTS,
            max_bytes=limits.events_max_bytes,
            max_age_s=limits.events_max_age_s,
        )
        self._bucket = await self._bus.bucket(BUCKET, max_bytes=BUCKET_MAX_BYTES)
        self._snapshots = Snapshots(self._bus, self._bucket, self._name)

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something that fails while the server comes up, and for good where there is no JetStream."""
        for left in reversed(range(TRIES)):
            try:
                await work()
            except TROUBLE:
                if not left:
                    raise
                await asyncio.sleep(TRY_S)
            else:
                return

    async def secret(self, made: str) -> str:
        """Return the secret that all lives and instances of the service share: `made`, if there is none yet."""
        try:
            return await self._snapshots.secret(made) if self._snapshots else made
        except TROUBLE as error:
            log.error("no shared secret", error=repr(error))  # noqa: TRY400 - the text says it all
            return made

    async def recover(self, core: Recoverable) -> None:
        """Bring a core back to where the service was."""
        if self._snapshots is None:
            return
        snapshots = self._snapshots

        async def work() -> None:
            known = await self._restore(snapshots, core)
            count = await self._replay(core, known)
            await snapshots.clear()
            log.info("recovered", snapshot=known, events=count)

        try:
            await self._tried(work)
        except TROUBLE as error:
            self._whole = False
            log.error("not all is remembered", error=repr(error))  # noqa: TRY400 - the text says it all
        core.recovered(wall_ms())

    async def _restore(self, snapshots: Snapshots, core: Recoverable) -> int:
        """Take in the snapshot, and return the last event that it knows; 0 if there is none."""
        try:
            found = await snapshots.read()
            if found is None:
                return 0
            core.restore(found[0], wall_ms())
        except MalformedMessageError as error:
            log.error("snapshot set aside", error=str(error))  # noqa: TRY400 - the text says it all
            await snapshots.set_aside()
            return 0
        return found[1]

    async def _replay(self, core: Recoverable, known: int) -> int:
        """Take in the events kept after number `known`, and return how many there were."""
        last, count = await last_kept(self._bus), 0
        if known < last:
            async for event in kept_after(self._bus, known):
                count += 1
                _take(core, event)
        self._known = last
        self.missed.has_heard(last)
        return count

    async def save(self, core: Recoverable, busy: Callable[[], bool] = lambda: False) -> bool:
        """Write a snapshot, if the core knows anything new, and tell whether one was written.

        Args:
            core: What knows.
            busy: Tells whether something that arrived waits to be taken in: then the state is not what it seems.
        """
        if self._snapshots is None or not self._whole or self.missed.is_behind:
            return False
        try:
            known = await last_kept(self._bus)
            await self._bus.flush()  # what was kept before that has arrived here by now
            data = core.snapshot()
            if busy() or self.missed.is_behind or data == self._saved:
                return False
            await self._snapshots.write(data, known)
            self._saved, self._known = data, known
        except (MalformedMessageError, *TROUBLE) as error:
            log.warning("snapshot not written", error=repr(error))
            return False
        return True


def _take(core: Recoverable, event: Event) -> None:
    """Have a core take in one event; one that it cannot is passed over."""
    try:
        core.recover(event, wall_ms())
    except Exception:
        log.exception("event passed over")


@asynccontextmanager
async def remembering(
    bus: NatsBus,
    journal: Journal,
    core: Recoverable,
    listens: Iterable[Listen],
    *,
    may_speak: Callable[[], Awaitable[bool]] = always,
) -> AsyncIterator[CoreRunner]:
    """Run a core that remembers, for as long as the context lasts; it is silent when `may_speak` denies it to speak."""

    async def recover() -> None:
        await journal.recover(core)

    async with CoreRunner(bus, core, listens, before=recover, may_speak=may_speak, missed=journal.missed) as runner:
        saving = asyncio.create_task(_save_forever(journal, core, lambda: runner.busy, may_speak))
        try:
            yield runner
        finally:
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)
    await journal.save(core)


async def _save_forever(
    journal: Journal, core: Recoverable, busy: Callable[[], bool], may_speak: Callable[[], Awaitable[bool]]
) -> None:
    """Write a snapshot now and then."""
    took_s = 0.0
    while True:
        await asyncio.sleep(max(SAVE_S, took_s / SAVE_SHARE))
        try:
            began_s = time.monotonic()
            written = await may_speak() and await journal.save(core, busy)
            took_s = time.monotonic() - began_s if written else 0.0
        except Exception:
            log.exception("snapshot failed")
