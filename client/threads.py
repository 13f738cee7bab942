"""Which thread of its program a call belongs to, and which calls it waited for (paper section 2).

A thread is one asyncio task that makes calls, or one thread of Python where no event loop runs; the one that opened the
program is `main`. The rules:

* A call comes after the previous call of its own thread.
* The first call of a new thread comes after the last call its spawner had made when it spawned the task.
* Once a child thread is done, the next call of its parent also comes after the child's last call.

So `asyncio.gather` of several calls and one call behind it make a map-reduce graph, with nothing to declare. What tasks
do not show, as two `gather`s in a row without a call between them, can be declared with `parents=`.

The bookkeeping itself knows no asyncio: `Thread` is told whether its task is done.
"""

import asyncio
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from autellix.schemas.ids import CallId, ThreadId

PARENTS_MAX = 1024
"""Parents that one call may name; of more, the last to end count."""


@dataclass(eq=False)
class Thread:
    """One line of control: the calls its next call comes after, and the children it has spawned."""

    id: ThreadId
    is_done: Callable[[], bool]
    after: tuple[CallId, ...] = ()
    children: list["Thread"] = field(default_factory=list)

    def parents(self) -> tuple[CallId, ...]:
        """Return the calls that a call made now comes after; joins the children that are done."""
        after, living = dict.fromkeys(self.after), []
        for child in self.children:
            if child.is_done():
                after |= dict.fromkeys(child.parents())
                living += child.children  # what a finished child left running is this thread's now
            else:
                living.append(child)
        self.after, self.children = tuple(after)[-PARENTS_MAX:], living
        return self.after

    def made(self, call_id: CallId) -> None:
        """Note that the thread made a call: the next one comes after it."""
        self.after = (call_id,)


class _Place(NamedTuple):
    """Where in a program some code runs: inherited by the tasks it spawns, as it was when it spawned them."""

    thread: Thread
    after: tuple[CallId, ...]


_PLACES: ContextVar[Mapping["Threads", _Place]] = ContextVar("autellix_places")


Flow = asyncio.Task[object] | threading.Thread
"""What runs."""


class Threads:
    """The threads of one program, found by what is running."""

    def __init__(self) -> None:
        self._by_flow: weakref.WeakKeyDictionary[Flow, Thread] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count(2)
        flow = _this_flow()
        self.main = Thread(ThreadId("main"), _done_or_gone(flow))
        self._by_flow[flow] = self.main
        self._move_to(self.main)

    def current(self) -> Thread:
        """Return the thread of what is running, a new one at its first call."""
        flow = _this_flow()
        if flow not in self._by_flow:
            origin = _PLACES.get({}).get(self, _Place(self.main, ()))
            thread = Thread(ThreadId(f"t{next(self._numbers)}"), _done_or_gone(flow), origin.after)
            origin.thread.children.append(thread)
            self._by_flow[flow] = thread
        return self._by_flow[flow]

    def made(self, thread: Thread, call_id: CallId) -> None:
        """Note that `thread`, which is the running one, made a call."""
        thread.made(call_id)
        self._move_to(thread)

    def _move_to(self, thread: Thread) -> None:
        _PLACES.set({**_PLACES.get({}), self: _Place(thread, thread.after)})

    def close(self) -> None:
        """Forget this program in the running task and in those it will spawn."""
        _PLACES.set({threads: place for threads, place in _PLACES.get({}).items() if threads is not self})


def _this_flow() -> Flow:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        task = None
    return task or threading.current_thread()


def _done_or_gone(flow: Flow) -> Callable[[], bool]:
    """Return whether `flow` is done, without keeping it and its result alive."""
    reference = weakref.ref(flow)

    def is_done() -> bool:
        alive = reference()
        if isinstance(alive, threading.Thread):
            return not alive.is_alive()
        return alive is None or alive.done()

    return is_done
