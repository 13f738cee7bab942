"""The program that some code runs in: found by its context, and else by its process.

Tasks, and threads that `asyncio.to_thread` begins, inherit the context of who began them. Threads that Python begins
otherwise do not; they run in the program that was opened last.
"""

import asyncio
import atexit
import os
import re
import sys
import threading
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from autellix.client.threads import Threads

END_S = 2.0
"""How long the end of a process may take to tell that its program is over."""


@dataclass(frozen=True, eq=False)
class Run:
    """A program in this process."""

    headers: Mapping[str, str]
    """What names it in HTTP."""
    threads: Threads


_CURRENT: ContextVar[Run] = ContextVar("autellix_run")
_OPEN: list[Run] = []
_of_process: tuple[int, Run] | None = None
_beginning = threading.Lock()


@contextmanager
def running(run: Run) -> Iterator[None]:
    """Run what is inside in a program."""
    token = _CURRENT.set(run)
    _OPEN.append(run)
    try:
        yield
    finally:
        _OPEN.remove(run)
        with suppress(ValueError):  # left in another task than it was entered in, which has a context of its own
            _CURRENT.reset(token)


def current_run(gateway: str) -> Run:
    """Return the program that the caller runs in; with none open, that of the process, which begins here.

    Args:
        gateway: The gateway's URL, which is told when the process's program is over.
    """
    current = _CURRENT.get(None)
    if current in _OPEN:
        return current
    with _beginning:
        return _OPEN[-1] if _OPEN and current is None and _in_a_bare_thread() else _run_of_process(gateway)


def _in_a_bare_thread() -> bool:
    """Tell whether this is a thread of Python without an event loop: it has no context that says where it belongs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return threading.current_thread() is not threading.main_thread()
    return False


def _run_of_process(gateway: str) -> Run:
    """Return the process's program; a forked process has its own, and one under `autellix run` what it was told."""
    global _of_process  # noqa: PLW0603 there is one process
    if _of_process is None or _of_process[0] != os.getpid():
        told = os.environ.get("AUTELLIX_PROGRAM_ID")
        if told:
            headers = {"X-Autellix-Program-Id": told}
        else:
            stem = re.sub(r"[^A-Za-z0-9._-]", "_", Path(sys.argv[0] or "python").stem)[:64]
            name = f"{stem}-{uuid.uuid4().hex}"
            headers = {"X-Session-ID": name}
            atexit.register(_end, gateway, name, os.getpid())
        _of_process = os.getpid(), Run(headers, Threads())
    return _of_process[1]


def _end(gateway: str, name: str, pid: int) -> None:
    """Tell that the process's program is over; should that fail, it expires by itself."""
    if os.getpid() != pid:
        return
    request = urllib.request.Request(f"{gateway}/v1/programs/{quote(name, safe='')}", method="DELETE")  # noqa: S310
    with suppress(OSError):
        urllib.request.urlopen(request, timeout=END_S).close()  # noqa: S310 where its calls went
