"""The bus on a real NATS server. Reconnects for ever; a service that loses NATS waits and says so.

Two things no waiting cures: a connection that nats-py closed for good, since the server said an error that it does not
know, and a subscription that the server refuses. Then the bus is lost, and who runs on it had better be started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

import nats
import structlog
from nats.aio.client import Client
from nats.errors import (
    BadSubjectError,
    ConnectionClosedError,
    ConnectionDrainingError,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferLimitError,
)
from nats.js.errors import BadRequestError
from nats.micro import add_service

from autellix.schemas.nats_access import ANYBODY, Access, AccessError, options
from autellix.schemas.trace_context import context_of, with_context
from autellix.services.bus import BusDownError, Delivery, Handler, PayloadTooLargeError, Subscription
from autellix.services.config import StartError

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsClientSubscription
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

log = structlog.get_logger()

RECONNECT_WAIT_S = 0.5
PING_S = 2
"""How often the server is asked for a sign."""
PINGS_MAX = 2
"""When so many signs stay out the connection is taken for lost: a network may swallow what is sent, and say nothing."""
UNREACHABLE_EVERY_S = 10.0
"""How often an outage is logged while it lasts."""
REFUSED = "permissions violation for subscription"
"""What a refused subscription is called by the server."""


class BusLostError(StartError, BusDownError):
    """The bus is of no use any more; the text says why."""


class NatsSubscription:
    """One interest."""

    def __init__(self, subscription: NatsClientSubscription) -> None:
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        """Stop receiving; what has arrived is still handled, unless the connection is away."""
        try:
            await self._subscription.drain()
        except (nats.errors.Error, OSError) as error:
            log.warning("unsubscribed without drain", error=repr(error))


class NatsBus:
    """One connection to NATS."""

    def __init__(self, client: Client, report: ConnectionReport) -> None:
        self._client = client
        self._report = report

    @property
    def max_payload(self) -> int:
        """Bytes that one message may hold, as the server says."""
        return int(self._client.max_payload)

    @property
    def connected(self) -> bool:
        """Whether the server can be reached now."""
        return bool(self._client.is_connected)

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and came back; what was sent to us in between is gone."""
        return int(self._client.stats["reconnects"])

    async def lost(self) -> str:
        """Return why this bus is of no use any more, when it is."""
        await self._report.lost.wait()
        return self._report.why_lost

    async def publish(self, subject: str, data: bytes, *, reply: str = "", trace: str = "") -> None:
        """Send `data`; while the connection is away it is kept, up to a bound."""
        headers = with_context(trace, len(data), self.max_payload)
        try:
            await self._client.publish(subject, data, reply=reply, headers=headers)
        except MaxPayloadError as error:
            raise PayloadTooLargeError(f"{len(data)} bytes, limit {self.max_payload}") from error
        except (ConnectionClosedError, ConnectionDrainingError, OutboundBufferLimitError) as error:
            raise BusDownError(str(error)) from error
        except BadSubjectError as error:
            raise ValueError(f"no subject: {subject!r}") from error

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Call `handler` for each message on `subject`, in order of arrival.

        Raises:
            BusDownError: when the connection is closed for good.
        """

        async def hand_over(msg: Msg) -> None:
            trace = context_of(msg.headers) if msg.headers else ""
            await handler(Delivery(msg.subject, msg.data, msg.reply, trace))

        try:
            return NatsSubscription(await self._client.subscribe(subject, queue=queue, cb=hand_over))
        except (ConnectionClosedError, ConnectionDrainingError) as error:
            raise BusDownError(str(error)) from error

    def new_inbox(self) -> str:
        """Return a subject that nobody else uses."""
        return str(self._client.new_inbox())

    async def flush(self) -> None:
        """Return when the server has taken in all that was sent before.

        Raises:
            BusLostError: when it refused a subscription.
        """
        await self._client.flush()  # nats-py writes this PING ahead of what it has buffered, then the buffer,
        await self._client.flush()  # so that only this one comes behind everything
        if self._report.lost.is_set():
            raise BusLostError(self._report.why_lost)

    async def is_heard(self, subject: str, timeout_s: float) -> bool:
        """Tell whether anybody listens to `subject`; who does not answer in time does, as far as is known."""
        try:
            await self._client.request(subject, timeout=timeout_s)
        except NoRespondersError:
            return False
        except (nats.errors.Error, OSError):
            return True
        return True

    async def announce(self, service: str, version: str) -> None:
        """Answer PING, INFO and STATS as a NATS micro service, so that `nats micro ls` shows this process."""
        await add_service(self._client, name=service, version=version)

    async def keep(self, stream: str, subjects: tuple[str, ...], *, max_bytes: int, max_age_s: float) -> None:
        """Have JetStream keep what is published on `subjects`, bounded by size and age."""
        jetstream = self._client.jetstream()
        config: dict[str, Any] = {
            "name": stream,
            "subjects": list(subjects),
            "max_bytes": max_bytes,
            "max_age": max_age_s,
            "discard": "old",
        }
        try:
            await jetstream.add_stream(**config)
        except BadRequestError:  # it exists with other bounds
            await jetstream.update_stream(**config)

    async def bucket(self, name: str, *, max_bytes: int) -> KeyValue:
        """Return a bucket of keys and values, bounded by size; each key has its latest value only."""
        jetstream = self._client.jetstream()
        try:
            # direct: a key is read by its name, which the server can allow or not
            return await jetstream.create_key_value(bucket=name, history=1, max_bytes=max_bytes, direct=True)
        except BadRequestError:  # it exists with another bound
            return await jetstream.key_value(name)

    async def keys(self, bucket: str, pattern: str) -> list[str]:
        """Return the keys of a bucket that fit a pattern, in which `*` stands for one token."""
        prefix = f"$KV.{bucket}."
        info = await self._client.jetstream().stream_info(f"KV_{bucket}", subjects_filter=prefix + pattern)
        return [subject.removeprefix(prefix) for subject in info.state.subjects or ()]

    async def purge(self, bucket: str, pattern: str) -> None:
        """Take away the keys of a bucket that fit a pattern; nothing is left of them."""
        await self._client.jetstream().purge_stream(f"KV_{bucket}", subject=f"$KV.{bucket}.{pattern}")

    def jetstream(self) -> JetStreamContext:
        """Return what knows the streams of the server."""
        return self._client.jetstream()

    async def close(self) -> None:
        """Handle what has arrived, send what was published, and disconnect."""
        self._report.leaving = True
        if self._client.is_closed:
            return
        try:
            await self._client.drain()
        except (nats.errors.Error, OSError) as error:  # not connected: there is nobody to say goodbye to
            log.warning("closed without drain", error=repr(error))
            with contextlib.suppress(OSError, RuntimeError):  # nor to send what was kept to; uvloop says RuntimeError
                await self._client.close()


class ConnectionReport:
    """Tells the log how a connection fares; while the server is away, not at every attempt."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told_at_s = -math.inf
        self.leaving = False
        """Whether it is us who close it."""
        self.lost = asyncio.Event()
        self.why_lost = ""

    async def error(self, error: Exception) -> None:
        """Log an error; of those that only say that the server is away one each `UNREACHABLE_EVERY_S`."""
        if REFUSED in str(error).lower():
            self._lose(f"refused by the server: {error}")
        elif self._client.is_connected:
            log.warning("nats error", error=repr(error))
        elif time.monotonic() - self._told_at_s >= UNREACHABLE_EVERY_S:
            self._told_at_s = time.monotonic()
            log.warning("nats unreachable", error=repr(error))

    async def disconnected(self) -> None:
        """Log that the server is away, unless it is we who leave."""
        if not self._client.is_closed:
            log.warning("nats disconnected")

    async def closed(self) -> None:
        """Note that there is no connection any more, and that none will be tried."""
        if not self.leaving:
            self._lose(f"closed for good: {self._client.last_error!r}")

    def _lose(self, why: str) -> None:
        log.error("nats lost", error=why)
        self.why_lost = self.why_lost or why
        self.lost.set()

    async def reconnected(self) -> None:
        """Log the end of an outage; the next one is told at once."""
        self._told_at_s = -math.inf
        log.info("nats reconnected")


async def connect(url: str, *, name: str, access: Access = ANYBODY) -> NatsBus:
    """Return a connection to the server at `url`, waiting for it as long as it takes.

    Raises:
        StartError: when what is needed to be let in cannot be used.
    """
    try:
        known_by = options(access)
    except AccessError as error:
        raise StartError(str(error)) from error
    client = Client()
    report = ConnectionReport(client)
    await client.connect(
        url,
        name=name,
        error_cb=report.error,
        disconnected_cb=report.disconnected,
        reconnected_cb=report.reconnected,
        closed_cb=report.closed,
        max_reconnect_attempts=-1,
        reconnect_time_wait=RECONNECT_WAIT_S,
        drain_timeout=10,
        ping_interval=PING_S,
        max_outstanding_pings=PINGS_MAX,
        **known_by,
    )
    return NatsBus(client, report)
