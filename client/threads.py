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
    has_called: bool = False
    is_calling: bool = False
    """Whether a call of it has not been accepted yet."""

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
        self.has_called, self.is_calling = True, False

    def spawned(self, child: "Thread") -> None:
        """Note a child, which the next call may come after."""
        if self.is_done():  # it makes no next call
            return
        if len(self.children) >= PARENTS_MAX:
            self.parents()
        self.children.append(child)


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
        self._by_flow: weakref.WeakKeyDictionary[Flow, tuple[Thread, _Place | None]] = weakref.WeakKeyDictionary()
        """Each flow's thread, and where it was spawned: a pool's thread of Python serves one spawner after another."""
        self._numbers = itertools.count(2)
        flow = _this_flow()
        self.main = Thread(ThreadId("main"), _done_or_gone(flow))
        self._by_flow[flow] = self.main, None
        self._move_to(self.main)

    def current(self) -> Thread:
        """Return the thread of what is running, a new one at its first call."""
        flow, place = _this_flow(), _PLACES.get({}).get(self)
        thread, spawned_at = self._by_flow.get(flow, (None, None))
        if thread is None or not _goes_on(thread, place, spawned_at):
            thread = self._spawned(flow, place or _Place(self.main, ()))
            self._by_flow[flow] = thread, place
        thread.is_calling = True
        return thread

    def _spawned(self, flow: Flow, origin: _Place) -> Thread:
        """Return a new thread that was spawned at `origin`."""
        thread = Thread(ThreadId(f"t{next(self._numbers)}"), lambda: False, origin.after)
        over = _done_or_gone(flow)
        if isinstance(flow, threading.Thread):  # a pool's goes on to other work, and nobody tells when
            thread.is_done = lambda: over() or not thread.is_calling
        else:
            thread.is_done = over
        origin.thread.spawned(thread)
        return thread

    def made(self, thread: Thread, call_id: CallId) -> None:
        """Note that `thread`, which is the running one, made a call."""
        thread.made(call_id)
        self._move_to(thread)

    def _move_to(self, thread: Thread) -> None:
        _PLACES.set({**_PLACES.get({}), self: _Place(thread, thread.after)})

    def close(self) -> None:
        """Forget this program in the running task and in those it will spawn."""
        _PLACES.set({threads: place for threads, place in _PLACES.get({}).items() if threads is not self})


def _goes_on(thread: Thread, place: _Place | None, spawned_at: _Place | None) -> bool:
    """Tell whether code at `place` is still that of a thread, and not other work of the same pool's thread."""
    return place is None or place.thread is thread or (place is spawned_at and not thread.has_called)


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
