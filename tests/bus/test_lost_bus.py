"""What no waiting cures: a subscription that is refused, a connection that is closed for good. No process lives on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sysconfig
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from autellix.client.connection import connect as connect_client
from autellix.client.errors import CallFailedError
from autellix.services.bus import BusDownError
from autellix.services.config import NatsSettings, StartError
from autellix.services.nats_bus import NatsBus, connect
from autellix.services.process import live
from tests.conftest import written_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.bus.conftest import Inbox

SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"
DENY = 'authorization: { users: [ { user: "u", password: "p", permissions: { subscribe: { deny: "not.this" } } } ] }'
SUBSCRIPTIONS_MAX = 25


class Serve(Protocol):
    """Starts a server with a configuration, and returns its URL."""

    def __call__(self, config: str, port: int = -1) -> str:
        """Start it."""
        ...


class Service:
    """The life of a service process, in this process: what it does is to subscribe to one subject."""

    def __init__(self, manager: socket.socket) -> None:
        self.subject = "s"
        self.buses: list[NatsBus] = []
        self._manager = manager

    def begin(self, url: str) -> asyncio.Task[None]:
        """Let it live."""
        return asyncio.create_task(live("test", NatsSettings(url=url), self._application))

    @asynccontextmanager
    async def _application(self, bus: NatsBus) -> AsyncIterator[None]:
        await bus.subscribe(self.subject, _pass_over)
        await bus.flush()
        self.buses.append(bus)
        yield

    async def told(self) -> str:
        """Return the next thing that it tells systemd."""
        async with asyncio.timeout(10):
            return (await asyncio.get_running_loop().sock_recv(self._manager, 100)).decode()

    def has_told(self) -> bool:
        """Tell whether there is such a thing."""
        with contextlib.suppress(BlockingIOError):
            return bool(self._manager.recv(100, socket.MSG_PEEK))
        return False


async def _pass_over(_: Any) -> None:
    """Do nothing with a message."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Return a service that is not running, whose manager listens."""
    address = f"autellix-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address)
        manager.setblocking(False)  # noqa: FBT003 - the socket's own
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + address)
        yield Service(manager)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serve]:
    """Return what starts a server with a configuration, and returns its URL."""
    with contextlib.ExitStack() as life:

        def serve(config: str, port: int = -1) -> str:
            path = tmp_path / "server.conf"
            path.write_text(f'listen: "127.0.0.1:{port}"\nports_file_dir: "{tmp_path}"\n{config}\n')
            server = subprocess.Popen([SERVER, "-c", path], stderr=subprocess.DEVNULL)
            life.callback(server.wait)
            life.callback(server.kill)
            return written_url(tmp_path)

        yield serve


async def test_a_refused_subscription_is_not_passed_over(served: Serve, inbox: Inbox) -> None:
    """The server says so behind our back; a flush after it raises, and what is allowed works on."""
    bus = await connect(served(DENY).replace("//", "//u:p@"), name="test")
    await bus.subscribe("this", inbox)
    await bus.flush()
    await bus.subscribe("not.this", inbox)
    with pytest.raises(StartError, match=r'(?i)refused by the server.*subscription to "not\.this"'):
        await bus.flush()
    why = await bus.lost()
    await bus.publish("this", b"x")

    assert "not.this" in why
    assert await inbox.data(1) == [b"x"]
    await bus.close()


async def test_a_service_that_is_refused_is_never_ready(served: Serve, service: Service) -> None:
    """It ends before it says that it can work."""
    service.subject = "not.this"
    with pytest.raises(StartError, match=r"not\.this"):
        async with asyncio.timeout(10):
            await service.begin(served(DENY).replace("//", "//u:p@"))

    assert not service.has_told()


async def test_a_connection_that_is_closed_for_good_ends_the_process(served: Serve, service: Service) -> None:
    """The server says something that nats-py knows no cure for: the service fails, for its manager to start it anew."""
    life = service.begin(served(f"max_subscriptions: {SUBSCRIPTIONS_MAX}"))
    ready = await service.told()
    with contextlib.suppress(BusDownError):
        for number in range(SUBSCRIPTIONS_MAX + 1):
            await service.buses[0].subscribe(f"more.{number}", _pass_over)
    with pytest.raises(BusDownError, match=r"closed for good.*maximum subscriptions exceeded"):
        async with asyncio.timeout(10):
            await life

    assert ready == "READY=1"


async def test_ready_when_it_can_work_and_not_before(served: Serve, service: Service) -> None:
    """A service that starts before its server is not ready; it is once it is subscribed, and leaving is no loss."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    life = service.begin(f"nats://127.0.0.1:{port}")
    await asyncio.wait({life}, timeout=0.2)
    early = service.has_told(), list(service.buses)
    served("", port)
    ready = await service.told()
    subscribed = len(service.buses)
    os.kill(os.getpid(), signal.SIGTERM)
    await life

    assert early == (False, [])
    assert (ready, subscribed) == ("READY=1", 1)
    assert await service.told() == "STOPPING=1"


async def test_a_program_whose_connection_is_closed_for_good(served: Serve) -> None:
    """Its open calls fail at once, as those of one whose connection was away."""
    connection = await connect_client(served(f"max_subscriptions: {SUBSCRIPTIONS_MAX}"))
    with connection.inbox() as inbox:
        for number in range(SUBSCRIPTIONS_MAX + 1):
            await connection._client.subscribe(f"more.{number}")
        with pytest.raises(CallFailedError) as failed:
            async with asyncio.timeout(10):
                await inbox.next()
    await connection.close()

    assert (503, "bus_lost") == (failed.value.status, failed.value.error.code)
