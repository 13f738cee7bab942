"""What only a real server can show: it comes late, goes away and comes back; it keeps events and shows services."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import pytest
import uvloop
from structlog.testing import capture_logs

from autellix.services.nats_bus import RECONNECT_WAIT_S, NatsBus, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.bus.conftest import Inbox

SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"


class OwnServer:
    """A nats-server that a test may start late, kill, and start again on the same port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; clients connect as soon as they can."""
        self._process = subprocess.Popen([SERVER, "-a", "127.0.0.1", "-p", str(self.port)], stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill it, and return when it is gone."""
        if self._process:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def server() -> Iterator[OwnServer]:
    """Return a server that is not started yet."""
    server = OwnServer()
    yield server
    server.kill()


@pytest.fixture
async def shared(nats_url: str) -> AsyncIterator[NatsBus]:
    """Return a client of the server that all tests share, which has JetStream."""
    bus = await connect(nats_url, name="test")
    yield bus
    await bus.close()


async def until_connected(bus: NatsBus, *, wanted: bool) -> None:
    """Return when the bus knows that its server came or went; nats-py has no event for both."""
    async with asyncio.timeout(10):
        while bus.connected != wanted:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


async def test_server_comes_late(server: OwnServer) -> None:
    """A service that starts before its server waits for it."""
    connecting = asyncio.create_task(connect(server.url, name="early"))
    await asyncio.wait({connecting}, timeout=0.1)
    assert not connecting.done()
    server.start()
    async with asyncio.timeout(10):
        bus = await connecting

    assert bus.connected
    await bus.close()


async def test_server_comes_back(server: OwnServer, inbox: Inbox) -> None:
    """After an outage the bus is connected and counts it, subscriptions hold, and what was said meanwhile is sent."""
    server.start()
    bus = await connect(server.url, name="test")
    await bus.subscribe("s", inbox)
    server.kill()
    await until_connected(bus, wanted=False)
    await bus.publish("s", b"meanwhile")
    server.start()
    await until_connected(bus, wanted=True)
    await bus.publish("s", b"after")

    assert await inbox.data(2) == [b"meanwhile", b"after"]
    assert bus.reconnects == 1
    await bus.close()


async def test_outage_is_logged(server: OwnServer, inbox: Inbox) -> None:
    """An outage is a few lines however long it lasts, and leaving is none."""
    with capture_logs() as lines:
        connecting = asyncio.create_task(connect(server.url, name="test"))
        await asyncio.wait({connecting}, timeout=3 * RECONNECT_WAIT_S)
        server.start()
        bus = await connecting
        late = [line["event"] for line in lines]
        server.kill()
        await until_connected(bus, wanted=False)
        server.start()
        await until_connected(bus, wanted=True)
        lost = [line["event"] for line in lines[len(late) :]]
        await bus.close()

    assert late == ["nats unreachable"]
    assert lost.count("nats disconnected") == 1
    assert lines[-1]["event"] == "nats reconnected"


async def test_trace_of_a_large_message(server: OwnServer, inbox: Inbox) -> None:
    """A header never makes a message larger than the server carries, which would end the connection for it."""
    server.start()
    bus = await connect(server.url, name="test")
    await bus.subscribe("s", inbox)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for size in (bus.max_payload, bus.max_payload - 60, bus.max_payload - 1000):
        await bus.publish("s", b"x" * size, trace=trace)
    found = [(await inbox.next()).trace for _ in range(3)]
    await bus.close()

    assert (found, bus.reconnects) == (["", "", trace], 0)


@pytest.mark.parametrize("text", ["", "00-1-2-01", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "x" * 10_000])
async def test_trace_that_is_none(server: OwnServer, inbox: Inbox, text: str) -> None:
    """A header of that name that is no trace context goes no further; the message does."""
    server.start()
    bus, client = await connect(server.url, name="test"), await nats.connect(server.url)
    await bus.subscribe("s", inbox)
    await bus.flush()
    await client.publish("s", b"x", headers={"traceparent": text, "other": "y"})
    delivery = await inbox.next()
    await client.close()
    await bus.close()

    assert (delivery.data, delivery.trace) == (b"x", "")


async def test_leaving_while_the_server_is_away(server: OwnServer, inbox: Inbox) -> None:
    """A service that stops during an outage stops: nothing waits for a server that does not answer."""
    server.start()
    bus = await connect(server.url, name="test")
    subscription = await bus.subscribe("s", inbox)
    server.kill()
    await until_connected(bus, wanted=False)
    async with asyncio.timeout(5):
        await subscription.unsubscribe()
        await bus.close()

    assert not bus.connected


def test_leaving_with_words_unsent(server: OwnServer) -> None:
    """On the loop that services run on, a service with something left to send stops during an outage too."""

    async def leave() -> bool:
        server.start()
        bus = await connect(server.url, name="test")
        server.kill()
        await until_connected(bus, wanted=False)
        await bus.publish("s", b"last words")
        await bus.close()
        return bus.connected

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert not runner.run(leave())


async def test_kept_events(shared: NatsBus, nats_url: str) -> None:
    """The stream keeps what is published on its subjects, and takes new bounds when it is asked for again."""
    await shared.keep("KEPT", ("kept.*",), max_bytes=10_000, max_age_s=60)
    await shared.publish("kept.x", b"one")
    await shared.keep("KEPT", ("kept.*",), max_bytes=20_000, max_age_s=30)
    await shared.keep("KEPT", ("kept.*",), max_bytes=20_000, max_age_s=30)
    client = await nats.connect(nats_url)
    info = await client.jetstream().stream_info("KEPT")
    await client.jetstream().delete_stream("KEPT")
    await client.close()

    assert info.state.messages == 1
    assert (info.config.max_bytes, info.config.max_age) == (20_000, 30)


async def test_shown_as_a_service(shared: NatsBus, nats_url: str) -> None:
    """A service answers the PING of NATS's micro services with its name."""
    await shared.announce("autellix-test", "0.1.0")
    client = await nats.connect(nats_url)
    pong = json.loads((await client.request("$SRV.PING.autellix-test", timeout=5)).data)
    await client.close()

    assert (pong["name"], pong["version"]) == ("autellix-test", "0.1.0")
