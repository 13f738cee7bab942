"""Virtual time: what is to happen, in the order of its time."""

import heapq
import itertools
from collections.abc import Callable
from math import inf

Action = Callable[[], None]


class Clock:
    """Milliseconds since the start of the simulation; they pass only when nothing is left to do at once."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._numbers = itertools.count()

    @property
    def next_ms(self) -> float:
        """Return when the next action is due; infinity when there is none."""
        return self._due[0][0] if self._due else inf

    def at(self, at_ms: float, action: Action) -> None:
        """Do `action` at a time that has not passed; of those due at the same time the first one asked for is first."""
        heapq.heappush(self._due, (max(at_ms, self.now_ms), next(self._numbers), action))

    def step(self) -> None:
        """Let time pass up to the next action, and do it."""
        self.now_ms, _, action = heapq.heappop(self._due)
        action()
