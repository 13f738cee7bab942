"""One active instance of a service, and others that stand by; `lease.py` has the rules.

One that stands by is up, as its supervisor sees it: it listens to nothing of its service and knows nothing yet. When it
takes the lease it recovers, as after a restart, and begins to work. A holder that finds the lease with another one ends
with an error, so that its supervisor starts it anew, to stand by.

Without JetStream there is no lease: whoever starts is active at once, and says so in the log.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import nats.errors
import structlog
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from autellix.services.bus import Delivery, Subscription
from autellix.services.lease import RENEW_S, Lease, Lookout, LostLeaseError, Seen, Tenure, decoded, encoded
from autellix.services.nats_bus import NatsBus

log = structlog.get_logger()

LOOK_S: Final = 0.25
"""How often one that waits looks."""
CONNECTED_S: Final = 0.05
HEARD_S: Final = 0.25
"""How long it waits for a word of the holder; that somebody is there it hears at once."""
ASK_S: Final = 1.0
"""How long JetStream may take to answer."""
LOOKS_MAX: Final = 20
"""So often in a row may the first look fail before a service starts without a lease."""
TROUBLE: Final = (nats.errors.Error, OSError)
LOST: Final = "another instance is active"


def now_s() -> float:
    """Return the time since the machine was started, asleep or not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Post:
    """The place of the active instance, as one instance sees it."""

    def __init__(self, bus: NatsBus, bucket: KeyValue | None, name: str) -> None:
        """Prepare.

        Args:
            bus: The connection that the service works on.
            bucket: Where the lease is; None: nowhere, and everybody is active.
            name: Of the service.
        """
        self._bus = bus
        self._bucket = bucket
        self._key = f"{name}.lease"
        self._own = Lease(secrets.token_hex(8), bus.new_inbox())
        self._revision = 0
        self._lookout = Lookout()
        self._tenure = Tenure()
        self._listening: Subscription | None = None
        self._lost = False
        self._leaving = False
        self._trouble = False
        self._asking = asyncio.Lock()

    @property
    def leased(self) -> bool:
        """Whether there is a lease to be had."""
        return self._bucket is not None

    async def take(self) -> bool:
        """Look at the lease and take it, if that may be; tell whether it was taken."""
        if self._bucket is None:
            return True
        asked_at_s, reconnects = now_s(), self._bus.reconnects
        lease, revision = await self._read(self._bucket)
        heard = bool(lease.holder) and await self._bus.is_heard(lease.inbox, HEARD_S)
        seen = Seen(lease, revision, heard, self._bus.reconnects)
        if not self._lookout.may_take(seen, time.monotonic()):
            return False
        if self._listening is None:  # first: who looks must find somebody there
            self._listening = await self._bus.subscribe(self._own.inbox, self._present)
            await self._bus.flush()
        try:
            await self._write(self._bucket, self._own, revision)
        except KeyWrongLastSequenceError:  # another one was faster
            return False
        self._tenure.confirmed(asked_at_s, reconnects)
        return True

    def give_up(self) -> None:
        """Do without a lease."""
        self._bucket = None

    async def may_speak(self) -> bool:
        """Tell whether this is the active instance, after asking if that is not sure; never again once it was lost."""
        if self._bucket is not None and not self._lost and not self._tenure.sure(now_s(), self._bus.reconnects):
            with contextlib.suppress(LostLeaseError):  # who renews for ever says it
                await self._confirm(self._bucket)
        return not self._lost

    async def renew_forever(self) -> None:
        """Keep the lease.

        Raises:
            LostLeaseError: when another one has it.
        """
        while self._bucket is not None:
            await asyncio.sleep(RENEW_S)
            await self._confirm(self._bucket, again=True)

    def leave(self) -> None:
        """Wait for the bus no more: what is still to be said is said without asking, should it be away."""
        self._leaving = True

    async def give_back(self) -> None:
        """Let another one take the lease at once."""
        if self._bucket is None or self._lost or not self._bus.connected:
            return
        try:
            await self._write(self._bucket, Lease(), self._revision)
        except TROUBLE as error:
            log.warning("lease not given back", error=repr(error))

    async def _confirm(self, bucket: KeyValue, *, again: bool = False) -> None:
        """Renew the lease; if not `again`, only if nobody did while this one waited for its turn.

        Raises:
            LostLeaseError: when another one has it.
        """
        async with self._asking:
            while not (self._bus.connected or self._leaving):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(CONNECTED_S)
            asked_at_s, reconnects = now_s(), self._bus.reconnects
            if not again and self._tenure.sure(asked_at_s, reconnects):
                return
            try:
                await self._renew(bucket)
                self._trouble = False
            except TROUBLE as error:
                if not self._trouble:
                    log.warning("lease not renewed", error=repr(error))
                self._trouble, asked_at_s = True, now_s()
            self._tenure.confirmed(asked_at_s, reconnects)

    async def _renew(self, bucket: KeyValue) -> None:
        if self._lost:
            raise LostLeaseError(LOST)
        try:
            await self._write(bucket, self._own, self._revision)
        except KeyWrongLastSequenceError:  # an answer was lost, or all that was kept, or the lease
            lease, revision = await self._read(bucket)
            if lease.holder not in ("", self._own.holder):
                self._lost = True
                raise LostLeaseError(LOST) from None
            await self._write(bucket, self._own, revision)

    async def _write(self, bucket: KeyValue, lease: Lease, revision: int) -> None:
        """Replace what the key says, if it is still this revision."""
        async with asyncio.timeout(ASK_S):
            self._revision = await bucket.update(self._key, encoded(lease), revision)

    async def _read(self, bucket: KeyValue) -> tuple[Lease, int]:
        """Return what the key says, and its revision; 0: it is not there."""
        try:
            async with asyncio.timeout(ASK_S):
                entry = await bucket.get(self._key)
        except KeyNotFoundError as error:
            return Lease(), error.entry.revision if error.entry else 0  # taken away by hand
        return decoded(entry.value or b""), entry.revision or 0

    async def _present(self, delivery: Delivery) -> None:
        if delivery.reply:
            await self._bus.publish(delivery.reply, b"")


Active = Callable[[Post], AbstractAsyncContextManager[Any]]
"""What the active instance does, once it is one; it says nothing while `Post.may_speak` denies it."""


@asynccontextmanager
async def one_active(bus: NatsBus, bucket: KeyValue | None, name: str, active: Active) -> AsyncIterator[None]:
    """Be the active instance of a service, or stand by, for as long as the context lasts.

    Raises:
        LostLeaseError: when another instance has become the active one.
    """
    post, settled, leave = Post(bus, bucket, name), asyncio.Event(), asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_live(post, active, group, settled, leave))
            await settled.wait()
            yield
            leave.set()
    except BaseExceptionGroup as errors:  # the first one is why all others were cancelled
        raise errors.exceptions[0] from None


async def _live(
    post: Post, active: Active, group: asyncio.TaskGroup, settled: asyncio.Event, leave: asyncio.Event
) -> None:
    """Wait for the lease, and work while it is ours."""
    if not await _first_look(post):
        log.info("standby")
        settled.set()
        if not await _wait(post, leave):
            return
    log.info("active", leased=post.leased)
    renewing = group.create_task(post.renew_forever())
    async with active(post):
        settled.set()
        await leave.wait()
        post.leave()
    renewing.cancel()
    await post.give_back()


async def _first_look(post: Post) -> bool:
    """Tell whether the lease is ours from the start; without one where it cannot even be looked at."""
    for left in reversed(range(LOOKS_MAX)):
        try:
            return await post.take()
        except TROUBLE as error:
            if not left:
                log.error("no lease", error=repr(error))  # noqa: TRY400 - the text says it all
        await asyncio.sleep(LOOK_S)
    post.give_up()
    return True


async def _wait(post: Post, leave: asyncio.Event) -> bool:
    """Wait for the lease; tell whether it is ours, else we are to leave."""
    while not leave.is_set():
        with contextlib.suppress(*TROUBLE):  # the bus or JetStream is away, and comes back
            if await post.take():
                return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(leave.wait(), LOOK_S)
    return False
