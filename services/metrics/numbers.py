"""The kinds of numbers that are kept: counts by label, spread of durations, and what is live.

Everything is bounded: labels beyond a limit are counted as `other`, and a live id whose end was never heard is
forgotten by age.
"""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from autellix.services.recent import Recent

LABELS_MAX: Final = 256
"""Engines that are told apart."""
OTHER: Final = "other"
HEARD_REMEMBERED: Final = 40_000
"""Beginnings and ends, lest one that is heard again is counted again."""


class Counter:
    """Counts by label; they only grow."""

    def __init__(self) -> None:
        self.by_label: dict[str, float] = defaultdict(float)

    def add(self, label: str, amount: float = 1) -> None:
        """Count `amount` more under `label`; nothing is counted for an amount below 0."""
        self.by_label[bounded(label, self.by_label)] += max(amount, 0)


class Histogram:
    """How many values, durations in seconds or ratios, fell below each bound, by label."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.by_label: dict[str, list[int]] = {}
        """For each bound the count up to it and above the one before; last, the count above all."""
        self.sums: dict[str, float] = defaultdict(float)

    def observe_ms(self, label: str, duration_ms: float) -> None:
        """Count one duration; clocks that disagree cannot make it negative."""
        self.observe(label, max(duration_ms, 0) / 1000)

    def observe(self, label: str, value: float) -> None:
        """Count one value."""
        label = bounded(label, self.by_label)
        counts = self.by_label.setdefault(label, [0] * (len(self.bounds) + 1))
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[label] += value


@dataclass
class Begun:
    """What is live."""

    began_at_ms: float


T = TypeVar("T", bound=Begun)


class Live(Generic[T]):
    """Ids that began and have not ended, each with what is known of it. Counting them is asking for their number.

    A beginning or an end that is heard again, which its id and its time tell, is none.
    """

    def __init__(self, *, count_max: int, age_max_ms: float) -> None:
        self._count_max = count_max
        self._age_max_ms = age_max_ms
        self._begun: dict[str, T] = {}
        self._heard = Recent[tuple[str, float, bool]](HEARD_REMEMBERED)
        """Id, time, and whether it began."""

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, name: str, known: T) -> bool:
        """Take in an id, beyond the bound the oldest one goes; tell whether it is news."""
        heard = (name, known.began_at_ms, True)
        if heard in self._heard:
            return False
        self._heard.add(heard)
        if len(self._begun) >= self._count_max:
            del self._begun[next(iter(self._begun))]
        self._begun[name] = known
        return True

    def get(self, name: str) -> T | None:
        """Return what is known of an id that is live."""
        return self._begun.get(name)

    def end(self, name: str, at_ms: float) -> T | None:
        """Take out an id and return what is known of it, None for one that is not live, or that ended then before."""
        heard = (name, at_ms, False)
        if name not in self._begun or heard in self._heard:
            return None
        self._heard.add(heard)
        return self._begun.pop(name)

    def expire(self, now_ms: float) -> None:
        """Forget the ids whose end must have been missed."""
        while self._begun:
            oldest = next(iter(self._begun))
            if now_ms - self._begun[oldest].began_at_ms <= self._age_max_ms:
                return
            del self._begun[oldest]


def bounded(label: str, known: dict[str, float] | dict[str, list[int]]) -> str:
    """Return `label`, or `other` when it is a new one beyond the limit."""
    return label if label in known or len(known) < LABELS_MAX else OTHER
