"""Reminders about calls, by time: a heap in which an outdated note is skipped, not searched for."""

import heapq
import itertools
from collections.abc import Callable
from math import inf

from autellix.engine.policy.call import QueuedCall


class Notes:
    """Notes that say when something is due for a call.

    Args:
        holds: Tells whether a note of a call, named by its number, is still the one that counts.
    """

    def __init__(self, holds: Callable[[QueuedCall, int], bool]) -> None:
        self._holds = holds
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, QueuedCall]] = []
        self._purge_above = 64

    def add(self, due_ms: float, call: QueuedCall) -> int | None:
        """Note when something is due and return the note's number; nothing is noted of what is never due."""
        if due_ms == inf:
            return None
        number = next(self._numbers)
        heapq.heappush(self._heap, (due_ms, number, call))
        if len(self._heap) > self._purge_above:
            self._heap = [entry for entry in self._heap if self._holds(entry[2], entry[1]) or entry[1] == number]
            heapq.heapify(self._heap)
            self._purge_above = 64 + 2 * len(self._heap)
        return number

    def first_ms(self) -> float:
        """Return when the first thing is due; infinity when nothing is."""
        self._drop_void()
        return self._heap[0][0] if self._heap else inf

    def due(self, now_ms: float) -> list[QueuedCall]:
        """Take off and return the calls for which something is due, the earliest first."""
        due = []
        while self.first_ms() <= now_ms:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def _drop_void(self) -> None:
        while self._heap and not self._holds(self._heap[0][2], self._heap[0][1]):
            heapq.heappop(self._heap)
