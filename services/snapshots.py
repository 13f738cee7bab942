"""Snapshots of a service's state in a bucket of JetStream.

Rules:
* A snapshot is written in parts at a place of its own, and counts once its head names that place and their digest.
* The head replaces the one that its writer has seen (compare-and-set): of two writers one hears that it was too late.
* One that cannot be read is set aside, head and parts, where a person may look at it; nothing else is left behind.
"""

import hashlib
import secrets
from typing import Final

import msgspec
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from autellix.schemas.codec import Decoder, MalformedMessageError
from autellix.services.nats_bus import NatsBus

BUCKET: Final = "AUTELLIX_STATE"
BUCKET_MAX_BYTES: Final = 512 * 2**20
PART_BYTES: Final = 512 * 1024


class Head(msgspec.Struct, frozen=True):
    """Which parts a snapshot consists of, and since when events are missing in it."""

    event: int
    """The last event that it knows for certain, by its number in the stream."""
    place: str
    parts: int
    digest: bytes


_HEADS: Decoder[Head] = Decoder(Head)


def head_of(data: bytes) -> Head:
    """Return the head in these bytes.

    Raises:
        MalformedMessageError: when there is none.
    """
    return _HEADS.decode(data)


class Snapshots:
    """Those of one service."""

    def __init__(self, bus: NatsBus, bucket: KeyValue, name: str) -> None:
        self._bus = bus
        self._bucket = bucket
        self._name = name
        self._revision = 0
        """Of the head that was seen or written last; 0: there is none."""
        self._place = ""
        """Where the parts of that one are."""

    async def read(self) -> tuple[bytes, int] | None:
        """Return the latest one and the last event that it knows; None if there is none.

        Raises:
            MalformedMessageError: when it is there and cannot be read.
        """
        head = await self._head(self._name)
        if head is None:
            return None
        try:
            parts = [await self._bucket.get(self._key(head.place, number)) for number in range(head.parts)]
        except KeyNotFoundError as error:
            raise MalformedMessageError("a part is missing") from error
        data = b"".join(part.value or b"" for part in parts)
        if _digest(data) != head.digest:
            raise MalformedMessageError("its parts do not fit")
        return data, head.event

    async def write(self, data: bytes, event: int) -> None:
        """Write one that knows all events up to number `event`.

        Raises:
            KeyWrongLastSequenceError: when another instance wrote one meanwhile; the next one replaces that.
        """
        place = secrets.token_hex(8)
        parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        head = msgspec.msgpack.encode(Head(event, place, len(parts), _digest(data)))
        try:
            for number, part in enumerate(parts):
                await self._bucket.put(self._key(place, number), part)
            self._revision = await self._bucket.update(self._name, head, self._revision)
        except BaseException as error:
            await self._bus.purge(BUCKET, self._key(place, "*"))
            if isinstance(error, KeyWrongLastSequenceError):
                await self._head(self._name)
            raise
        before, self._place = self._place, place
        if before:
            await self._bus.purge(BUCKET, self._key(before, "*"))

    async def clear(self) -> None:
        """Take away the parts that a writer left who died before they counted."""
        aside = await self._decoded(f"{self._name}.unreadable")
        used = {self._place, aside.place if aside else ""}
        keys = await self._bus.keys(BUCKET, self._key("*", "*"))
        for place in {key.split(".")[1] for key in keys} - used:
            await self._bus.purge(BUCKET, self._key(place, "*"))

    async def secret(self, made: str) -> str:
        """Return the secret that all lives and instances of the service share: `made`, if there is none yet."""
        key = f"{self._name}.secret"
        try:
            await self._bucket.create(key, made.encode())
        except KeyWrongLastSequenceError:
            return ((await self._bucket.get(key)).value or made.encode()).decode()
        return made

    async def _head(self, key: str) -> Head | None:
        """Take notice of the latest head, and return it.

        Raises:
            MalformedMessageError: when it is there and cannot be read.
        """
        self._revision, self._place = 0, ""
        try:
            entry = await self._bucket.get(key)
        except KeyNotFoundError:
            return None
        self._revision = entry.revision or 0
        head = head_of(entry.value or b"")
        self._place = head.place
        return head

    async def _decoded(self, key: str) -> Head | None:
        try:
            return head_of((await self._bucket.get(key)).value or b"")
        except (KeyNotFoundError, MalformedMessageError):
            return None

    async def set_aside(self) -> None:
        """Keep what cannot be read; its parts are not taken away for the next one."""
        entry = await self._bucket.get(self._name)
        await self._bucket.put(f"{self._name}.unreadable", entry.value or b"")
        self._place = ""

    def _key(self, place: str, number: int | str) -> str:
        return f"{self._name}.{place}.{number}"


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
