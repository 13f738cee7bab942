"""What JetStream keeps of durable calls: their records in a bucket, and a queue of those that have no result yet.

Both are bounded. A record outlives its call's tries and its result's time; the queue refuses what it has no room for,
and so does the bucket, which new calls may fill to three quarters only: the rest is for the results of those it has.
"""

import asyncio
import time
from typing import Final, NamedTuple

import nats.errors
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import (
    BadRequestError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
    NotFoundError,
    ServiceUnavailableError,
)
from nats.js.kv import KeyValue

from autellix.schemas import subjects
from autellix.schemas.codec import Decoder, encode
from autellix.services.config import DurableCallsSettings
from autellix.services.durable_calls.core import Job, Record
from autellix.services.nats_bus import NatsBus

STREAM: Final = "AUTELLIX_DURABLE"
BUCKET: Final = "AUTELLIX_RESULTS"
CONSUMER: Final = "durable-calls"
TROUBLE: Final = (nats.errors.Error, OSError)
"""What JetStream may answer, or fail to."""
NO_ROOM: Final = 10077
"""JetStream's number for a stream that is full."""
ABSENT: Final = (NotFoundError, ServiceUnavailableError, NoStreamResponseError, nats.errors.NoRespondersError)
TWICE_S: Final = 3600.0
"""How long the queue knows what it has taken in, so that it does not take it in again."""
MISSED: Final = 3
"""Heartbeats after which a call is given to another instance."""
ROOM: Final = 0.75
ROOM_S: Final = 1.0
"""How often it is asked how much room there is."""
PENDING_MAX: Final = 1_000_000
"""Calls that are being tried, or wait to be tried again."""

_RECORDS: Decoder[Record] = Decoder(Record)


class ConflictError(Exception):
    """Somebody else has written the record meanwhile."""


class NotOpenError(ConnectionError):
    """JetStream is not there."""


class Kept(NamedTuple):
    """A record as it was read."""

    record: Record | None
    revision: int


class Store:
    """The records and the queue."""

    def __init__(self, bus: NatsBus, settings: DurableCallsSettings) -> None:
        self._bus = bus
        self._settings = settings
        self._bucket: KeyValue | None = None
        self._bytes = 0
        """What the records took when that was asked, and what was written since."""
        self._bytes_until_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether JetStream was there when it was last asked to keep anything."""
        return self._bucket is not None

    async def open(self) -> None:
        """Have records and queue kept, within the bounds of the settings."""
        jetstream, limits = self._bus.jetstream(), self._settings
        age_s = limits.tries_s + limits.results_kept_s
        queue = StreamConfig(
            name=STREAM,
            subjects=[subjects.CALL_QUEUED],
            retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.NEW,
            storage=StorageType.FILE,
            max_bytes=limits.queue_max_bytes,
            max_age=age_s,
            duplicate_window=min(TWICE_S, age_s),
        )
        await _keep(jetstream, queue)
        try:
            bucket = await jetstream.create_key_value(
                bucket=BUCKET,
                history=1,
                ttl=age_s,
                max_bytes=limits.results_max_bytes,
                direct=False,  # else a replica may answer that has not heard of a record yet
            )
        except BadRequestError:  # it exists with other bounds
            config = (await jetstream.stream_info(f"KV_{BUCKET}")).config
            window_s = min(config.duplicate_window, age_s)
            config = config.evolve(max_age=age_s, max_bytes=limits.results_max_bytes, duplicate_window=window_s)
            await jetstream.update_stream(config)
            bucket = await jetstream.key_value(BUCKET)
        consumer = ConsumerConfig(
            durable_name=CONSUMER,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=MISSED * limits.heartbeat_s,
            max_ack_pending=PENDING_MAX,
        )
        await jetstream.add_consumer(STREAM, consumer)
        self._bucket = bucket

    async def pull(self) -> JetStreamContext.PullSubscription:
        """Return what fetches calls from the queue."""
        return await self._bus.jetstream().pull_subscribe_bind(CONSUMER, STREAM)

    async def has_room(self) -> bool:
        """Tell whether new calls may be kept."""
        if time.monotonic() >= self._bytes_until_s:
            self._bytes = (await self._bus.jetstream().stream_info(f"KV_{BUCKET}")).state.bytes
            self._bytes_until_s = time.monotonic() + ROOM_S
        return self._bytes < ROOM * self._settings.results_max_bytes

    async def pending(self) -> int:
        """Return how many calls are in the queue, those that are being tried among them."""
        return int((await self._bus.jetstream().stream_info(STREAM)).state.messages)

    async def read(self, key: str) -> Kept:
        """Return the record under a key."""
        try:
            entry = await self._opened().get(key)
        except KeyNotFoundError as error:
            return Kept(None, (error.entry and error.entry.revision) or 0)
        return Kept(_RECORDS.decode(entry.value or b""), entry.revision or 0)

    async def write(self, key: str, record: Record, revision: int) -> int:
        """Write a record over the one that was read, and return its revision.

        Raises:
            ConflictError: when that one is not the latest any more.
        """
        data = encode(record)
        try:
            written = int(await self._opened().update(key, data, last=revision))
        except KeyWrongLastSequenceError as error:
            raise ConflictError(key) from error
        self._bytes += len(data)
        return written

    async def forget(self, key: str, revision: int) -> None:
        """Take a record away, if it is still that one."""
        try:
            await self._opened().delete(key, last=revision)
        except KeyWrongLastSequenceError:
            return

    async def enqueue(self, job: Job) -> None:
        """Queue a call; one that is there already is not taken in again."""
        self._opened()
        headers = {"Nats-Msg-Id": job.nonce}
        await self._bus.jetstream().publish(subjects.CALL_QUEUED, encode(job), stream=STREAM, headers=headers)

    def failed(self, error: Exception) -> None:
        """Note that something did not work: what is not there has to be opened anew."""
        if isinstance(error, ABSENT) and getattr(error, "err_code", None) != NO_ROOM:
            self._bucket = None

    def _opened(self) -> KeyValue:
        if self._bucket is None:
            raise NotOpenError("JetStream is not there")
        return self._bucket

    async def keep_open(self, every_s: float = 2.0) -> None:
        """Open it whenever it is not, for ever."""
        while True:
            await asyncio.sleep(every_s)
            if not self.is_open and self._bus.connected:
                try:
                    await self.open()
                except TROUBLE:
                    continue


async def _keep(jetstream: JetStreamContext, config: StreamConfig) -> None:
    try:
        await jetstream.add_stream(config)
    except BadRequestError:  # it exists with other bounds
        await jetstream.update_stream(config)
