"""The kinds of numbers that are kept: counts by label, spread of durations, and what is live.

Everything is bounded: labels beyond a limit are counted as `other`, and a live id whose end was never heard is
forgotten by age.
"""

from bisect import bisect_left
from collections import defaultdict
from typing import Final

LABELS_MAX: Final = 256
"""Engines that are told apart."""
OTHER: Final = "other"


class Counter:
    """Counts by label; they only grow."""

    def __init__(self) -> None:
        self.by_label: dict[str, float] = defaultdict(float)

    def add(self, label: str, amount: float = 1) -> None:
        """Count `amount` more under `label`; nothing is counted for an amount below 0."""
        self.by_label[bounded(label, self.by_label)] += max(amount, 0)


class Histogram:
    """How many durations fell below each bound, in seconds, by label."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.by_label: dict[str, list[int]] = {}
        """For each bound the count up to it and above the one before; last, the count above all."""
        self.sums_s: dict[str, float] = defaultdict(float)

    def observe_ms(self, label: str, duration_ms: float) -> None:
        """Count one duration; clocks that disagree cannot make it negative."""
        label = bounded(label, self.by_label)
        seconds = max(duration_ms, 0) / 1000
        counts = self.by_label.setdefault(label, [0] * (len(self.bounds_s) + 1))
        counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sums_s[label] += seconds


class Live:
    """Ids that began and have not ended, each with its beginning. Counting them is asking for their number."""

    def __init__(self, *, count_max: int, age_max_ms: float) -> None:
        self._count_max = count_max
        self._age_max_ms = age_max_ms
        self._began_at_ms: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._began_at_ms)

    def begin(self, name: str, at_ms: float) -> None:
        """Take in an id; beyond the bound the oldest one goes."""
        if len(self._began_at_ms) >= self._count_max:
            del self._began_at_ms[next(iter(self._began_at_ms))]
        self._began_at_ms[name] = at_ms

    def end(self, name: str) -> float | None:
        """Take out an id and return when it began, None for one that is not known."""
        return self._began_at_ms.pop(name, None)

    def expire(self, now_ms: float) -> None:
        """Forget the ids whose end must have been missed."""
        while self._began_at_ms:
            oldest = next(iter(self._began_at_ms))
            if now_ms - self._began_at_ms[oldest] <= self._age_max_ms:
                return
            del self._began_at_ms[oldest]


def bounded(label: str, known: dict[str, float] | dict[str, list[int]]) -> str:
    """Return `label`, or `other` when it is a new one beyond the limit."""
    return label if label in known or len(known) < LABELS_MAX else OTHER
