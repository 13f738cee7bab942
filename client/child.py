"""One child process of a stack: its log, its readiness, its end.

A child gets a process group of its own, so that Ctrl-C on the terminal reaches the stack only, which then stops its
children in order; and it is told to stop when the stack dies, however that happens. It says that it is ready as it
would to systemd: by a datagram to the socket that NOTIFY_SOCKET names (`sd_notify(3)`).
"""

import asyncio
import ctypes
import os
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Readiness(asyncio.DatagramProtocol):
    """The manager's end of `sd_notify(3)`: hears when a process says that it does its work from now on."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._asked_at = time.monotonic()
        self._ready_at: float | None = None
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket, to be closed."""
        self._transport = transport

    def close(self) -> None:
        """Hear nothing more."""
        if self._transport:
            self._transport.close()

    def datagram_received(self, data: bytes, _addr: object) -> None:
        """Take in what the process says."""
        if b"READY=1" in data.splitlines():
            self.mark()

    def mark(self) -> None:
        """Note that the process is ready."""
        self._ready_at = self._ready_at or time.monotonic()
        self.event.set()

    @property
    def seconds(self) -> float:
        """How long the process took to get ready, or has taken so far."""
        return (self._ready_at or time.monotonic()) - self._asked_at


class Child:
    """A running process; see `start_child`."""

    def __init__(self, name: str, log: Path, readiness: Readiness, process: Process) -> None:
        self.name = name
        self.log = log
        self.readiness = readiness
        self._process = process

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    async def ended(self) -> int:
        """Return the exit status once the process has ended; negative: the signal that ended it."""
        return await self._process.wait()

    async def stop(self, grace_s: float) -> None:
        """Ask the process to stop, and after `grace_s` kill it and whatever it has left behind."""
        self.readiness.close()
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            pass  # the kill below is for it
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    def last_lines(self, count: int = 12) -> str:
        """Return the end of the log."""
        with self.log.open(errors="replace") as lines:
            return "".join(deque(lines, maxlen=count)).rstrip()


async def start_child(
    name: str, command: Sequence[str], *, log: Path, notify: Path, environment: Mapping[str, str] | None = None
) -> Child:
    """Start a process that appends its output to `log` and says on the socket `notify` when it is ready.

    Its environment is this process's, with `environment` over it.
    """
    readiness = Readiness()
    await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: readiness, local_addr=str(notify), family=socket.AF_UNIX
    )
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {}), "NOTIFY_SOCKET": str(notify)},
            start_new_session=True,
            preexec_fn=_stop_with_parent,
        )
    return Child(name, log, readiness, process)


def _stop_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent dies (Linux)."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
