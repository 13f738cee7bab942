"""A stack whose processes are killed, frozen, and started again, the NATS server among them."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import nats
from nats.aio.client import Client
from proxy import Proxy

from autellix.client.child import Child, start_child
from autellix.client.nats_server import nats_command
from autellix.client.plan import Plan
from autellix.client.stack import Stack, free_port

NATS = "nats-server"


@dataclass(frozen=True, kw_only=True)
class ProxiedPlan(Plan):
    """A stack whose processes reach the NATS server by ways of their own."""

    ports: dict[str, int] = field(default_factory=dict)
    """By process: where its way begins."""
    own: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By process: settings that the others do not have."""

    def commands(self, nats_url: str, *, port: int, metrics_port: int) -> dict[str, list[str]]:
        """Return the command lines; of two settings of one key the last one counts."""
        plain = super().commands(nats_url, port=port, metrics_port=metrics_port)
        return {name: [*command, *self._way(name), *self._own(name)] for name, command in plain.items()}

    def _way(self, name: str) -> list[str]:
        return ["--set", f"nats.url=nats://127.0.0.1:{self.ports[name]}"] if name in self.ports else []

    def _own(self, name: str) -> list[str]:
        return [part for setting in self.own.get(name, ()) for part in ("--set", setting)]


class Fleet:
    """Such a stack.

    Args:
        plan: What it consists of; the port of its NATS server has to be named, so that it is the same after a restart.
        folder: For logs, sockets and what the NATS server keeps.
        own: By process: settings that the others do not have.
    """

    def __init__(self, plan: Plan, folder: Path, own: dict[str, tuple[str, ...]] | None = None) -> None:
        self.nats_url = f"nats://127.0.0.1:{plan.nats_port}"
        names = plan.commands(self.nats_url, port=0, metrics_port=0)
        self.ways = {name: Proxy(free_port(), plan.nats_port) for name in names}
        """By process: its way to the NATS server."""
        known = {each.name: getattr(plan, each.name) for each in fields(Plan)}
        ports = {name: way.port for name, way in self.ways.items()}
        self.plan = replace(
            ProxiedPlan(**known, ports=ports, own=own or {}), log_dir=folder / "logs", nats_url=self.nats_url
        )
        self.stack = Stack(self.plan)
        self._folder = folder
        self._now: dict[str, Child] = {}
        self._starts = 0

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        """Start everything, and stop it in the end."""
        (self._folder / "nats").mkdir()
        self.stack.log_dir.mkdir()
        await self.start(NATS)
        try:
            async with AsyncExitStack() as life:
                for way in self.ways.values():
                    await life.enter_async_context(way)
                await life.enter_async_context(self.stack)
                self._now |= {child.name: child for child in self.stack.children}
                yield
                for name, child in self._now.items():
                    if name != NATS and child not in self.stack.children:
                        await child.stop(20)
        finally:
            await self._now[NATS].stop(10)

    async def kill(self, name: str) -> None:
        """End a process without any warning."""
        with suppress(ProcessLookupError):
            os.kill(self._now[name].pid, signal.SIGKILL)
        await self._now[name].ended()
        self._now[name].readiness.close()

    @property
    def pids(self) -> dict[str, int]:
        """Return the process ids of those that run now, by name."""
        return {name: child.pid for name, child in self._now.items()}

    def children(self, name: str) -> list[int]:
        """Return the processes that a process has started."""
        parent = self._now[name].pid
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(path) == parent]

    async def ended(self, name: str) -> None:
        """Return when a process has ended by itself."""
        async with asyncio.timeout(30):
            await self._now[name].ended()
        self._now[name].readiness.close()

    async def start(self, name: str) -> None:
        """Start a process again, and wait until it works."""
        self._starts += 1
        notify = self._folder / f"{self._starts}.sock"
        self._now[name] = child = await start_child(name, self._command(name), log=self._log(name), notify=notify)
        async with asyncio.timeout(120):
            if name == NATS:
                await (await connected(self.nats_url)).close()
            else:
                await child.readiness.event.wait()

    def freeze(self, name: str, how: signal.Signals) -> None:
        """Stop a process, or let it go on."""
        os.kill(self._now[name].pid, how)

    def _log(self, name: str) -> Path:
        return self.stack.log_dir / f"{name}.log"

    def _command(self, name: str) -> Sequence[str]:
        if name == NATS:
            return nats_command(self._folder / "nats", self.plan.nats_port)
        return self.plan.commands(self.stack.nats_url, port=self.stack.port, metrics_port=free_port())[name]


def _parent(process: Path) -> int:
    with suppress(OSError):  # it has ended meanwhile
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


async def is_gone(pid: int, within_s: float) -> bool:
    """Tell whether a process ends in time."""
    until_s = time.monotonic() + within_s
    while _lives(pid) and time.monotonic() < until_s:  # noqa: ASYNC110 - the kernel tells nobody but its parent
        await asyncio.sleep(0.1)
    return not _lives(pid)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def connected(nats_url: str) -> Client:
    """Return a connection to a server that may not be there yet, and may go away."""

    async def on_error(_: Exception) -> None:
        """Wait on."""

    return await nats.connect(nats_url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=on_error)
