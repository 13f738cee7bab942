"""Starts a system and stops it for certain: its processes are a group of their own, and its output is a log file."""

import asyncio
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from autellix.client.bench.systems import Shape, System, filled
from autellix.client.child import Child, start_child
from autellix.client.errors import StackError
from autellix.client.stack import free_port

POLL_S = 0.2
ANSWER_S = 5.0
"""How long a system that starts may take to say whether it is ready."""


@asynccontextmanager
async def running(name: str, system: System, shape: Shape, *, here: Path, log: Path) -> AsyncIterator[str]:
    """Start a system, yield its URL once it serves, and leave no process of it behind.

    Args:
        name: Of the system, for errors.
        system: How it is started.
        shape: How large its engine is.
        here: The folder, absolute, that its command may name.
        log: Where its output goes; appended.

    Raises:
        StackError: when its command is not found, or it ends or takes too long before it is ready; with the log's end.
    """
    if not system.command:
        yield system.url
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    own = {"port": free_port(), "logs": log.with_suffix(""), "here": here, "python": sys.executable}
    values = shape.values() | own
    url = filled(system.url, values)
    command = [filled(part, values) for part in (*system.command, *system.arguments)]
    command[0] = _found(name, command[0])
    with tempfile.TemporaryDirectory(prefix="autellix-") as folder:
        notify = Path(folder) / "notify"  # a socket: its path must be short
        child = await start_child(name, command, log=log, notify=notify, environment=system.environment)
        try:
            await _ready(child, url + system.ready, system.start_s)
            yield url
        finally:
            await child.stop(system.stop_s)


def _found(name: str, command: str) -> str:
    """Return the path of a command: one beside this Python, or on PATH."""
    found = shutil.which(command, path=sysconfig.get_path("scripts")) or shutil.which(command)
    if found is None:
        raise StackError(f"{name}: there is no command {command!r}")
    return found


async def _ready(child: Child, url: str, start_s: float) -> None:
    """Return once `url` answers with 200; fail as soon as the process has ended."""
    ended = asyncio.create_task(child.ended())
    answers = asyncio.create_task(_answers(url))
    done, waiting = await asyncio.wait({ended, answers}, timeout=start_s, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    if answers not in done:
        why = f"ended with status {ended.result()}" if ended in done else f"is not ready after {start_s:g} s"
        raise StackError(f"{child.name} {why}; the end of {child.log}:\n{child.last_lines()}")


async def _answers(url: str) -> None:
    """Return once `url` answers with 200."""
    async with httpx.AsyncClient(timeout=ANSWER_S) as http:
        while True:
            try:
                if (await http.get(url)).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass  # nothing listens yet
            await asyncio.sleep(POLL_S)
