"""The KV blocks of an engine with vLLM's prefix cache, told apart by what is in them.

Rules, all but the last vLLM's (`BlockPool`, `KVCacheManager`):
* A full block is found by its content until it is evicted, in use or not. Several copies of one content may exist; the
  oldest is found.
* A block in use is never evicted; several calls may hold one.
* New blocks are blank ones as long as there are any, then those that were free the longest. Of a call's blocks that
  became free together, the last goes first: so wherever a block is cached, the ones before it are too.
* Cached blocks that the gate exposes (`engine/policy/room.py`) go before the others, and those that it orphans before
  them, until a call takes them up again.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

ENTRIES_PER_BLOCK = 4
"""Entries in the order of release, at most: beyond that those that are void are dropped."""


@dataclass(slots=True)
class Holding:
    """The blocks that one call holds."""

    copies: list[int] = field(default_factory=list)
    """Its full blocks that are in the cache, in order."""
    blank: int = 0
    """How many it has beside them: not full, or not to be cached."""

    def __len__(self) -> int:
        return len(self.copies) + self.blank


class BlockPool:
    """All blocks of one engine. Those in the cache, the copies of contents, have numbers; blank ones are counted.

    Args:
        blocks: How many there are.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._blank = blocks
        self._evictable = 0
        self._numbers = list(range(blocks))
        """Those that no copy has."""
        self._oldest: dict[int, int] = {}
        """The copy that is found, by content."""
        self._younger: dict[int, list[int]] = {}
        """Further copies of the same content."""
        self._content = [0] * blocks
        """What a copy holds."""
        self._holders = [0] * blocks
        """How many calls hold a copy."""
        self._freed = [0] * blocks
        """In which release a copy became free last."""
        self._releases: OrderedDict[int, list[int]] = OrderedDict()
        """Copies in the order of their release; one that has been held since is void, and skipped."""
        self._exposed: OrderedDict[int, list[int]] = OrderedDict()
        """Free copies that go before all others, in the order of their exposure."""
        self._orphaned: OrderedDict[int, list[int]] = OrderedDict()
        """Free copies that go before these."""
        self._orders = (self._orphaned, self._exposed, self._releases)
        self._release = 0
        self._entries = 0

    @property
    def free(self) -> int:
        """How many blocks nobody holds, cached or not."""
        return self._blank + self._evictable

    def cached(self, keys: Sequence[int], most: int) -> int:
        """Return how many of the first `most` keys are cached, counted up to the first that is not."""
        return bisect_left(range(most), True, key=lambda place: keys[place] not in self._oldest)  # noqa: FBT003 - not a flag

    def in_use(self, keys: Sequence[int], hits: int) -> int:
        """Return how many of the first `hits` keys, all of them cached, somebody holds."""
        return sum(self._holders[self._oldest[key]] > 0 for key in keys[:hits])

    def share(self, keys: Sequence[int], hits: int) -> Holding:
        """Return a holding of the blocks of the first `hits` keys, all of them cached."""
        copies = list(map(self._oldest.__getitem__, keys[:hits]))
        holders = self._holders
        for copy in copies:
            if not holders[copy]:
                self._evictable -= 1
            holders[copy] += 1
        if copies:
            self._drop_entries(copies)
        return Holding(copies)

    def take(self, blocks: int) -> None:
        """Let blank blocks be held, by whoever counts them; the caller sees to it that so many are free."""
        self._blank -= blocks
        if self._blank < 0:
            self._evict(-self._blank)
            self._blank = 0

    def fill(self, holding: Holding, keys: Sequence[int]) -> None:
        """Cache blank blocks of a holding, now full, under their contents."""
        holding.blank -= len(keys)
        for key in keys:
            copy = self._numbers.pop()
            self._content[copy] = key
            self._holders[copy] = 1
            holding.copies.append(copy)
            if self._oldest.setdefault(key, copy) != copy:
                self._younger.setdefault(key, []).append(copy)

    def release(self, holding: Holding) -> None:
        """Empty a holding; what nobody else holds is free."""
        self._release += 1
        released = []
        for copy in holding.copies:
            self._holders[copy] -= 1
            if not self._holders[copy]:
                self._freed[copy] = self._release
                released.append(copy)
        self._blank += holding.blank
        self._evictable += len(released)
        holding.copies, holding.blank = [], 0
        self._enter(self._releases, released)

    def _evict(self, blocks: int) -> None:
        self._evictable -= blocks
        while blocks:
            order = next(filter(None, self._orders))
            release, copies = next(iter(order.items()))
            while copies and blocks:
                copy = copies.pop()
                self._entries -= 1
                if self._freed[copy] == release and not self._holders[copy]:
                    self._forget(copy)
                    blocks -= 1
            if not copies:
                del order[release]

    def expose(self, keys: Collection[int]) -> None:
        """Let blocks that nobody holds be evicted before all others; of these, the last first.

        Args:
            keys: With each all that are cached behind it, unless somebody holds them.
        """
        self._move(self._exposed, keys)

    def orphan(self, keys: Collection[int]) -> None:
        """Let blocks that nobody holds be evicted before the exposed ones; of these, the last first.

        Args:
            keys: With each all that are cached behind it, unless somebody holds them.
        """
        self._move(self._orphaned, keys)

    def keep(self, keys: Collection[int]) -> None:
        """Let blocks that nobody holds be neither exposed nor orphaned any more, as if they had been released now.

        Args:
            keys: Of each all that are before it.
        """
        self._move(self._releases, keys)

    def _move(self, order: OrderedDict[int, list[int]], keys: Collection[int]) -> None:
        self._release += 1
        moved = []
        for copy in self._free_copies(keys):
            self._freed[copy] = self._release
            moved.append(copy)
        self._enter(order, moved)

    def evict(self, keys: Collection[int]) -> None:
        """Evict blocks, unless somebody holds them.

        Args:
            keys: With each all that are cached behind it, unless somebody holds them.
        """
        for copy in list(self._free_copies(keys)):
            self._forget(copy)
            self._evictable -= 1
            self._blank += 1

    def _free_copies(self, keys: Collection[int]) -> Iterator[int]:
        for key in keys:
            if key in self._oldest:
                copies = (self._oldest[key], *self._younger.get(key, ()))
                yield from (copy for copy in copies if not self._holders[copy])

    def _forget(self, copy: int) -> None:
        self._freed[copy] = 0
        self._numbers.append(copy)
        key = self._content[copy]
        if key not in self._younger:
            del self._oldest[key]
            return
        younger = self._younger[key]
        if self._oldest[key] == copy:
            self._oldest[key] = younger.pop(0)
        else:
            younger.remove(copy)
        if not younger:
            del self._younger[key]

    def _enter(self, order: OrderedDict[int, list[int]], copies: list[int]) -> None:
        """Enter copies in an order as those of the latest release."""
        if copies:
            order[self._release] = copies
            self._entries += len(copies)
        if self._entries > ENTRIES_PER_BLOCK * self.blocks:
            self._drop_void()

    def _drop_entries(self, copies: list[int]) -> None:
        """Drop the entries of copies that are held again, if they were released together: the usual case."""
        release = self._freed[copies[-1]]
        order = next((order for order in self._orders if release in order), self._releases)
        entries = order.get(release, [])
        if entries[: len(copies)] == copies:
            del entries[: len(copies)]
            self._entries -= len(copies)
            if not entries:
                del order[release]

    def _drop_void(self) -> None:
        for order in self._orders:
            for release, copies in list(order.items()):
                copies[:] = [copy for copy in copies if self._freed[copy] == release and not self._holders[copy]]
                if not copies:
                    del order[release]
        self._entries = self._evictable
