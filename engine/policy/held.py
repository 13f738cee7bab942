"""The calls that a gate holds, in order."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any

from autellix.engine.policy.program_cache import GatedCall


class HeldCalls:
    """Held calls by their standing: the smaller comes first, and no two are equal."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, GatedCall]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[GatedCall]:
        return (gated for _, gated in self._entries)

    @property
    def first(self) -> GatedCall:
        """Return the first; there must be one."""
        return self._entries[0][1]

    def behind_the_first(self, most: int) -> list[GatedCall]:
        """Return those that follow the first, so many at most."""
        return list(islice(self, 1, 1 + most))

    def add(self, gated: GatedCall, standing: Any) -> None:
        """Hold a call."""
        gated.standing = standing
        insort(self._entries, (standing, gated), key=itemgetter(0))

    def remove(self, gated: GatedCall) -> None:
        """Hold a call no more."""
        del self._entries[self.ahead_of(gated)]
        gated.standing = None

    def ahead_of(self, gated: GatedCall) -> int:
        """Return how many are before a held call."""
        return bisect_left(self._entries, gated.standing, key=itemgetter(0))
