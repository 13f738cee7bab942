"""What a bus promises, on each of them: one behaviour, written once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from autellix.services.bus import BusDownError, PayloadTooLargeError

if TYPE_CHECKING:
    from autellix.services.bus import Bus, Delivery
    from tests.bus.conftest import Connect, Inbox


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_delivery(bus: Bus, other: Bus, inbox: Inbox) -> None:
    """A message arrives with its subject, its data and the reply subject of its sender."""
    await bus.subscribe("a.b", inbox)
    await bus.flush()
    await other.publish("a.b", b"\x00\xff", reply="my.inbox")
    await other.publish("a.b", b"")
    first, second = await inbox.next(), await inbox.next()

    assert (first.subject, first.data, first.reply) == ("a.b", b"\x00\xff", "my.inbox")
    assert (second.data, second.reply) == (b"", "")


async def test_trace(bus: Bus, other: Bus, inbox: Inbox) -> None:
    """The span that a message is part of comes with it, and a message without one has none."""
    await bus.subscribe("traced", inbox)
    await bus.flush()
    await other.publish("traced", b"x", trace=TRACE)
    await other.publish("traced", b"y")

    assert [(await inbox.next()).trace for _ in range(2)] == [TRACE, ""]


async def test_order(bus: Bus, other: Bus, inbox: Inbox) -> None:
    """Messages of one publisher arrive in its order, also across the subjects of one subscription."""
    await bus.subscribe("order.*", inbox)
    await bus.flush()
    sent = [str(number).encode() for number in range(500)]
    for number, data in enumerate(sent):
        await other.publish(f"order.{number % 3}", data)

    assert sent == await inbox.data(500)


async def test_one_at_a_time(bus: Bus, inbox: Inbox) -> None:
    """A handler that waits is not called again until it is done."""
    busy, most = 0, 0

    async def handle(delivery: Delivery) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0)
        busy -= 1
        await inbox(delivery)

    await bus.subscribe("slow", handle)
    for _ in range(20):
        await bus.publish("slow", b"x")
    await inbox.data(20)

    assert most == 1


@pytest.mark.parametrize(
    ("pattern", "heard"),
    [
        ("w.a.b", ["w.a.b"]),
        ("w.*.b", ["w.a.b", "w.x.b"]),
        ("w.a.*", ["w.a.b", "w.a.c"]),
        ("w.*", ["w.a"]),
        ("w.>", ["w.a", "w.a.b", "w.a.c", "w.x.b", "w.a.b.c"]),
        ("w.a.>", ["w.a.b", "w.a.c", "w.a.b.c"]),
        ("*.a", ["w.a"]),
        ("w.A.b", []),
    ],
)
async def test_wildcards(bus: Bus, inbox: Inbox, pattern: str, heard: list[str]) -> None:
    """`*` is one token, a last `>` one or more, and letters are told apart by case."""
    await bus.subscribe(pattern, inbox)
    await bus.subscribe("end.of.test", inbox)
    for subject in ("w.a", "w.a.b", "w.a.c", "w.x.b", "w.a.b.c", "v", "w", "end.of.test"):
        await bus.publish(subject, subject.encode())
    await bus.close()

    assert sorted(heard) == sorted(data.decode() for data in inbox.arrived() if data != b"end.of.test")


async def test_fan_out(connected: Connect, make_inbox: type[Inbox]) -> None:
    """Every subscriber without a group hears every message, two of one client too."""
    inboxes = [make_inbox() for _ in range(3)]
    first, second = await connected(), await connected()
    for bus, inbox in zip((first, first, second), inboxes, strict=True):
        await bus.subscribe("all", inbox)
        await bus.flush()
    await second.publish("all", b"x")

    assert [await inbox.data(1) for inbox in inboxes] == [[b"x"]] * 3


async def test_queue_group(connected: Connect, make_inbox: type[Inbox]) -> None:
    """Of a group each message reaches one, every member gets a share, and others hear it all the same."""
    members, outsider = [make_inbox() for _ in range(3)], make_inbox()
    clients = [await connected() for _ in members]
    for client, inbox in zip(clients, members, strict=True):
        await client.subscribe("job.*", inbox, queue="workers")
    await clients[0].subscribe("job.>", outsider)
    for client in clients:
        await client.flush()
    sent = [str(number).encode() for number in range(300)]
    for data in sent:
        await clients[0].publish("job.x", data)
    assert sent == await outsider.data(300)
    for client in clients:
        await client.flush()
        await client.close()
    shares = [inbox.arrived() for inbox in members]

    assert Counter(data for share in shares for data in share) == Counter(sent)
    assert all(len(share) > 30 for share in shares)


async def test_two_groups(bus: Bus, make_inbox: type[Inbox]) -> None:
    """Each group hears a message once; one group on two patterns is still one group."""
    one, two = make_inbox(), make_inbox()
    await bus.subscribe("g.x", one, queue="one")
    await bus.subscribe("g.*", one, queue="one")
    await bus.subscribe("g.x", two, queue="two")
    for _ in range(20):
        await bus.publish("g.x", b"x")
    await bus.close()

    assert (len(one.arrived()), len(two.arrived())) == (20, 20)


async def test_unsubscribe(bus: Bus, other: Bus, inbox: Inbox) -> None:
    """Who unsubscribes still handles what has arrived, and hears nothing more."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        begun.set()
        await go_on.wait()
        await inbox(delivery)

    subscription = await bus.subscribe("u", handle)
    await bus.flush()
    for number in range(5):
        await other.publish("u", str(number).encode())
    await other.flush()
    await begun.wait()
    leaving = asyncio.create_task(subscription.unsubscribe())
    await bus.flush()
    go_on.set()
    await leaving
    await other.publish("u", b"late")
    await other.flush()
    await bus.close()

    assert inbox.arrived() == [b"0", b"1", b"2", b"3", b"4"]


async def test_unsubscribe_twice(bus: Bus, inbox: Inbox) -> None:
    """Giving up an interest twice, or after the bus was closed, is harmless."""
    subscription, second = [await bus.subscribe("u", inbox) for _ in range(2)]
    await subscription.unsubscribe()
    await subscription.unsubscribe()
    await bus.close()
    await second.unsubscribe()

    assert inbox.arrived() == []


async def test_close(bus: Bus, other: Bus, inbox: Inbox) -> None:
    """Closing sends what was published and handles what has arrived; closing twice is harmless."""
    await bus.subscribe("c", inbox)
    await bus.flush()
    for number in range(100):
        await other.publish("c", str(number).encode())
    await other.close()
    await bus.close()
    await bus.close()

    assert len(inbox.arrived()) == 100
    assert not bus.connected
    with pytest.raises(BusDownError):
        await bus.publish("c", b"x")


async def test_last_words(bus: Bus, other: Bus, inbox: Inbox) -> None:
    """A handler may still publish while its bus is being closed."""

    async def answer(delivery: Delivery) -> None:
        await bus.publish(delivery.reply, delivery.data)

    await bus.subscribe("question", answer)
    await other.subscribe("answer", inbox)
    for client in (bus, other):
        await client.flush()
    for _ in range(10):
        await other.publish("question", b"x", reply="answer")
    await other.flush()
    await bus.close()

    assert await inbox.data(10) == [b"x"] * 10


async def test_handler_that_fails(bus: Bus, inbox: Inbox) -> None:
    """A handler that fails on one message is given the next."""

    async def handle(delivery: Delivery) -> None:
        if delivery.data == b"bad":
            raise ValueError("cannot")
        await inbox(delivery)

    await bus.subscribe("f", handle)
    for data in (b"1", b"bad", b"2", b"bad", b"3"):
        await bus.publish("f", data)

    assert await inbox.data(3) == [b"1", b"2", b"3"]


async def test_payload_limit(bus: Bus, inbox: Inbox) -> None:
    """A message up to the limit is carried; a larger one is refused, nothing of it is sent, and the bus lives on."""
    await bus.subscribe("p", inbox)
    await bus.publish("p", b"x" * bus.max_payload)
    with pytest.raises(PayloadTooLargeError, match=str(bus.max_payload)):
        await bus.publish("p", b"x" * (bus.max_payload + 1))
    await bus.publish("p", b"after")

    assert [len(data) for data in await inbox.data(2)] == [bus.max_payload, 5]
    assert bus.connected


@pytest.mark.parametrize("subject", ["", " ", "a b", "a\r\nPUB b 0\r\n", "a\n"])
async def test_bad_subject(bus: Bus, subject: str) -> None:
    """Text that is no subject is refused and cannot become a command of the protocol."""
    with pytest.raises(ValueError, match="no subject"):
        await bus.publish(subject, b"x")
    assert bus.connected


async def test_nobody_listens(bus: Bus) -> None:
    """Publishing to nobody is no error."""
    await bus.publish("nobody.here", b"x")
    await bus.flush()

    assert bus.connected
    assert bus.reconnects == 0


async def test_inboxes(bus: Bus, other: Bus) -> None:
    """Inboxes are all different, one token can be added, and wildcards below them work."""
    names = {client.new_inbox() for client in (bus, other) for _ in range(50)}

    assert len(names) == 100
    assert not any(" " in name or "*" in name for name in names)


async def test_subscribed_before_flush_returns(bus: Bus, other: Bus, inbox: Inbox) -> None:
    """What is published after a flush is heard by what was subscribed before it, each time."""
    for number in range(100):
        await bus.subscribe(f"now.{number}", inbox)
        await bus.flush()
        await other.publish(f"now.{number}", b"x")

    assert len(await inbox.data(100)) == 100
