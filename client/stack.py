"""A whole Autellix on one machine: a NATS server and every service as child processes.

`async with Stack(Plan(...)) as stack` returns when calls can be made, and leaves no process behind.
"""

import asyncio
import socket
import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from autellix.client.child import Child, start_child
from autellix.client.connection import shared
from autellix.client.errors import StackError
from autellix.client.nats_server import nats_command, nats_url
from autellix.client.plan import Plan

POLL_S = 0.1
START_S = 900.0
"""How long everything may take to start; loading a large model takes minutes."""
STOP_S = 40.0
"""How long a process may take to stop; longer than an engine worker drains."""
STOP_STARTING_S = 5.0
"""The same for one that is still starting, and so has no call to finish."""

T = TypeVar("T")


class Stack:
    """The processes of one Autellix.

    Attributes:
        children: The processes, in the order of starting.
        nats_url: Where programs connect.
        http_url: Where HTTP clients connect.
        log_dir: The folder of the logs, a file a process.
    """

    def __init__(self, plan: Plan) -> None:
        """Settle where everything is.

        Raises:
            StackError: when the gateway's port is taken.
        """
        self._plan = plan
        self._life = AsyncExitStack()
        self.children: list[Child] = []
        self.nats_url = plan.nats_url or ""
        self.port = plan.port or free_port()
        check_free(self.port)
        self.http_url = f"http://127.0.0.1:{self.port}"
        self.log_dir = plan.log_dir or Path(tempfile.mkdtemp(prefix="autellix-logs-"))

    async def __aenter__(self) -> Self:
        """Start everything and wait until the gateway is ready.

        Raises:
            StackError: when a process dies, or it takes too long.
            UnreachableError: when there is no server at the given NATS URL.
        """
        async with AsyncExitStack() as life:
            self.log_dir.mkdir(parents=True, exist_ok=True)
            folder = Path(life.enter_context(tempfile.TemporaryDirectory(prefix="autellix-")))
            life.push_async_callback(self._stop)
            try:
                async with asyncio.timeout(START_S):
                    await self._start(folder)
            except TimeoutError as error:
                waited_for = ", ".join(child.name for child in self.children if not child.readiness.event.is_set())
                raise StackError(f"Not ready after {START_S:g} s: {waited_for or 'gateway'}.") from error
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop everything, the last started first."""
        await self._life.aclose()

    async def _start(self, folder: Path) -> None:
        if self.nats_url:
            async with shared(self.nats_url):
                pass  # it answers; were it not there, the services would wait for it for ever
        else:
            await self._start_nats(folder)
        for name, command in self._plan.commands(self.nats_url, port=self.port, metrics_port=free_port()).items():
            await self._start_child(name, command, folder)
        await self.guard(self._ready())

    async def _start_nats(self, folder: Path) -> None:
        server = await self._start_child("nats-server", nats_command(folder, self._plan.nats_port), folder)
        self.nats_url = await self.guard(nats_url(folder))
        server.readiness.mark()

    async def _start_child(self, name: str, command: Sequence[str], folder: Path) -> Child:
        child = await start_child(name, command, log=self.log_dir / f"{name}.log", notify=folder / f"{name}.sock")
        self.children.append(child)
        return child

    async def _ready(self) -> None:
        """Return when every process says that it is ready, and the gateway that calls can be made."""
        for child in self.children:
            await child.readiness.event.wait()
        async with httpx.AsyncClient(base_url=self.http_url) as http:
            while True:
                if await _answers(http):
                    return
                await asyncio.sleep(POLL_S)

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which fails as soon as a process dies.

        Raises:
            StackError: naming the process and showing the end of its log.
        """
        task = asyncio.create_task(work)
        deaths = {asyncio.create_task(child.ended()): child for child in self.children}
        try:
            await asyncio.wait({task, *deaths}, return_when=asyncio.FIRST_COMPLETED)
            for death, child in deaths.items():
                if death.done() and not task.done():
                    raise StackError(f"{child.name} died ({_how(death.result())}):\n{child.last_lines()}")
            return await task
        finally:
            for running in (task, *deaths):
                running.cancel()
            await asyncio.gather(task, *deaths, return_exceptions=True)

    async def _stop(self) -> None:
        for child in reversed(self.children):
            await child.stop(STOP_S if child.readiness.event.is_set() else STOP_STARTING_S)


async def _answers(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/ready")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _how(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def is_free(port: int) -> bool:
    """Tell whether a TCP port of the loopback interface can be used."""
    try:
        check_free(port)
    except StackError:
        return False
    return True


def check_free(port: int) -> None:
    """Check that a TCP port of the loopback interface can be used.

    Raises:
        StackError: when it is no port, or something else listens there.
    """
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except (OSError, OverflowError) as error:
        raise StackError(f"Port {port} cannot be used ({error}); choose another one with --port.") from error
