"""The place of the active instance, on a real NATS server: who gets it, keeps it and loses it."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import nats
import pytest
from structlog.testing import capture_logs

from autellix.services import standby as module
from autellix.services.lease import LostLeaseError, Tenure
from autellix.services.nats_bus import NatsBus, connect
from autellix.services.snapshots import BUCKET, BUCKET_MAX_BYTES
from autellix.services.standby import Post, one_active

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.js.kv import KeyValue


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    """Return a connection."""
    bus = await connect(nats_url, name="test")
    yield bus
    await bus.close()


@pytest.fixture
async def bucket(bus: NatsBus) -> KeyValue:
    """Return the bucket of the leases."""
    return await bus.bucket(BUCKET, max_bytes=BUCKET_MAX_BYTES)


@pytest.fixture
def name() -> str:
    """Return the name of a service that nobody holds yet."""
    return f"service-{secrets.token_hex(4)}"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have leases renewed all the time."""
    monkeypatch.setattr(module, "RENEW_S", 0.01)


async def test_one_of_many(bus: NatsBus, bucket: KeyValue, name: str) -> None:
    """Of many that try at once one gets it, and the next one when it gives it back."""
    posts = [Post(bus, bucket, name) for _ in range(8)]
    taken = await asyncio.gather(*(post.take() for post in posts))
    holder = posts[taken.index(True)]
    others = [post for post in posts if post is not holder]

    assert sum(taken) == 1
    assert [await post.take() for post in others] == [False] * 7
    await holder.give_back()
    assert await others[0].take()
    assert not await others[1].take()


@pytest.mark.parametrize("how", ["deleted", "purged", "nonsense", "written by itself"])
async def test_holder_keeps_it(bus: NatsBus, bucket: KeyValue, name: str, how: str) -> None:
    """What was done to the key by hand, or by itself with an answer that was lost, takes the lease from nobody."""
    post = Post(bus, bucket, name)
    assert await post.take()
    match how:
        case "deleted":
            await bucket.delete(f"{name}.lease")
        case "purged":
            await bus.purge(BUCKET, f"{name}.lease")
        case "nonsense":
            await bucket.put(f"{name}.lease", b"\xc1")
        case "written by itself":
            await bucket.put(f"{name}.lease", (await bucket.get(f"{name}.lease")).value or b"")
    await post._confirm(bucket, again=True)

    assert await post.may_speak()
    assert not await Post(bus, bucket, name).take()


async def test_holder_loses_it(bus: NatsBus, bucket: KeyValue, name: str) -> None:
    """Who finds another one there says no more word, whatever becomes of that one."""
    post, other = Post(bus, bucket, name), Post(bus, bucket, name)
    assert await post.take()
    await bus.purge(BUCKET, f"{name}.lease")
    assert await other.take()
    post._tenure = Tenure()  # it was frozen
    may_speak = await post.may_speak()
    await post.give_back()
    await other.give_back()

    assert not may_speak
    assert not await post.may_speak()
    with pytest.raises(LostLeaseError):
        await post._confirm(bucket, again=True)


async def test_work_ends_when_it_is_lost(bus: NatsBus, bucket: KeyValue, name: str, quick: None) -> None:
    """What the active instance does is ended, and so is its life, with an error."""
    ended = asyncio.Event()

    @asynccontextmanager
    async def active(_post: Post) -> AsyncIterator[None]:
        try:
            yield
        finally:
            ended.set()

    with pytest.raises(LostLeaseError):  # noqa: PT012 - where it is raised is the point
        async with one_active(bus, bucket, name, active):
            await bus.purge(BUCKET, f"{name}.lease")
            await Post(bus, bucket, name).take()
            await asyncio.Event().wait()
    assert ended.is_set()


async def test_error_of_the_work(bus: NatsBus, bucket: KeyValue, name: str) -> None:
    """An error of the work itself comes out as it is, also when it had to wait for the lease."""

    @asynccontextmanager
    async def broken(_post: Post) -> AsyncIterator[None]:
        raise ValueError("broken")
        yield

    holder = Post(bus, bucket, name)
    with pytest.raises(ValueError, match="broken"):
        async with one_active(bus, bucket, f"{name}-other", broken):
            pass
    assert await holder.take()
    with pytest.raises(ValueError, match="broken"):  # noqa: PT012 - where it is raised is the point
        async with one_active(bus, bucket, name, broken):
            await holder.give_back()
            await asyncio.Event().wait()


async def test_stopped_while_it_stands_by(bus: NatsBus, bucket: KeyValue, name: str) -> None:
    """One that waits leaves when it is told to, without having done anything."""

    @asynccontextmanager
    async def active(_post: Post) -> AsyncIterator[None]:
        raise AssertionError("it was not its turn")
        yield

    assert await Post(bus, bucket, name).take()
    with capture_logs() as lines:
        async with asyncio.timeout(10), one_active(bus, bucket, name, active):
            pass

    assert [line["event"] for line in lines] == ["standby"]


async def test_jetstream_goes_away(
    bus: NatsBus, bucket: KeyValue, name: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that cannot ask works on, and says so once; who cannot ask at its start does without a lease."""

    async def absent(*_: object, **__: object) -> None:
        raise nats.js.errors.ServiceUnavailableError

    @asynccontextmanager
    async def active(post: Post) -> AsyncIterator[None]:
        posts.append(post)
        yield

    posts: list[Post] = []
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    with capture_logs() as lines:
        async with one_active(bus, bucket, name, active):
            monkeypatch.setattr(type(bucket), "update", absent)
            monkeypatch.setattr(type(bucket), "get", absent)
            for _ in range(3):
                await posts[0]._confirm(bucket, again=True)
            assert await posts[0].may_speak()
            async with one_active(bus, bucket, name, active):
                assert await posts[1].may_speak()

    assert [line["event"] for line in lines] == [
        "active",
        "lease not renewed",
        "no lease",
        "active",
        "lease not given back",
    ]
