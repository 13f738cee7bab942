"""The simulated KV blocks under any sequence of events: none is lost, none in use is evicted, prefixes stay whole."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from autellix.engine.simulation.blocks import BlockPool, Holding

BLOCKS = 24
LONGEST = 12


def chain(stem: int, fork: int) -> list[int]:
    """Return the keys of one content: two contents of one stem are equal up to the smaller fork."""
    return [stem * 1000 + place if place < fork else stem * 1000 + fork * 20 + place + 100 for place in range(LONGEST)]


def behind(stem: int, place: int) -> list[int]:
    """Return the keys of all contents of a stem from a place on, each after those before it."""
    return list(dict.fromkeys(key for fork in range(7) for key in chain(stem, fork)[place:]))


@dataclass(eq=False)
class Call:
    """What the test knows of one call's blocks."""

    keys: list[int]
    holding: Holding
    full: int = field(default=0)


class BlocksMachine(RuleBasedStateMachine):
    """Drives a pool as an engine does: share what is cached, take, fill, release."""

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS)
        self.live: list[Call] = []

    def hits(self, keys: list[int]) -> int:
        """Count the leading cached keys one by one."""
        return next((place for place, key in enumerate(keys) if key not in self.pool._oldest), len(keys))

    @rule(target=calls, stem=st.integers(0, 2), fork=st.integers(0, 6))
    def begin(self, stem: int, fork: int) -> Call:
        """A call begins with what is cached of it."""
        keys = chain(stem, fork)
        hits = self.pool.cached(keys, LONGEST)
        held_before, free = self.pool.in_use(keys, hits), self.pool.free
        assert hits == self.hits(keys)
        call = Call(keys, self.pool.share(keys, hits), hits)
        assert self.pool.free == free - (hits - held_before)
        self.live.append(call)
        return call

    @rule(call=calls, blocks=st.integers(1, 4), cache=st.booleans())
    def go_on(self, call: Call, blocks: int, cache: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """A call takes blocks, as far as they are free, and has them cached once they are full."""
        blocks = min(blocks, self.pool.free, LONGEST - len(call.holding))
        self.pool.take(blocks)
        call.holding.blank += blocks
        if cache:
            self.pool.fill(call.holding, call.keys[call.full : len(call.holding)])
            call.full = len(call.holding)
            assert all(key in self.pool._oldest for key in call.keys[: call.full])

    @rule(stem=st.integers(0, 2), place=st.integers(0, LONGEST - 1), orphan=st.booleans())
    def expose(self, stem: int, place: int, orphan: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """What no call holds may be evicted first, with all that is behind it; until then it is there."""
        free, cached = self.pool.free, set(self.pool._oldest)
        (self.pool.orphan if orphan else self.pool.expose)(behind(stem, place))
        assert free == self.pool.free
        assert cached == set(self.pool._oldest)

    @rule(stem=st.integers(0, 2), place=st.integers(0, LONGEST - 1))
    def evict(self, stem: int, place: int) -> None:
        """What no call holds is evicted, with all that is behind it."""
        free, keys = self.pool.free, behind(stem, place)
        self.pool.evict(keys)
        held = {key for call in self.live for key in call.keys[: call.full]}
        assert free == self.pool.free
        assert set(keys) & set(self.pool._oldest) <= held

    @rule(call=consumes(calls))
    def end(self, call: Call) -> None:
        """A call ends; until blocks are short it could go on where it was."""
        self.pool.release(call.holding)
        self.live.remove(call)
        assert len(call.holding) == 0
        assert self.pool.cached(call.keys, LONGEST) >= call.full

    @invariant()
    def every_block_is_counted_once(self) -> None:
        """Free blocks and held ones, shared ones once, are all there are."""
        held = {copy for call in self.live for copy in call.holding.copies}
        blank = sum(call.holding.blank for call in self.live)
        assert BLOCKS == self.pool.free + len(held) + blank
        assert 0 <= self.pool._blank
        assert 0 <= self.pool._evictable == BLOCKS - len(self.pool._numbers) - len(held)

    @invariant()
    def what_is_held_is_cached(self) -> None:
        """A held copy is never evicted, and has as many holders as hold it."""
        for call in self.live:
            assert call.keys[: call.full] == [self.pool._content[copy] for copy in call.holding.copies]
        holders = [copy for call in self.live for copy in call.holding.copies]
        assert [holders.count(copy) for copy in range(BLOCKS)] == [self.pool._holders[copy] for copy in range(BLOCKS)]

    @invariant()
    def prefixes_are_whole(self) -> None:
        """Wherever a key is cached all keys before it are: so the hits may be found by bisection."""
        for keys in (chain(stem, fork) for stem in range(3) for fork in range(7)):
            assert not any(key in self.pool._oldest for key in keys[self.hits(keys) :])


TestBlocks = BlocksMachine.TestCase
TestBlocks.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def pool_of(blocks: int, *chains: Sequence[int]) -> BlockPool:
    """Return a pool where calls of these contents came and went, one after the other."""
    pool = BlockPool(blocks)
    for keys in chains:
        pool.take(len(keys))
        holding = Holding(blank=len(keys))
        pool.fill(holding, keys)
        pool.release(holding)
    return pool


def evicted(pool: BlockPool) -> list[int]:
    """Let all that is free be evicted, block by block, and return the keys in the order in which they go."""
    gone: list[int] = []
    while pool.free:
        before = set(pool._oldest)
        pool.take(1)
        gone += before - set(pool._oldest)
    return gone


def test_the_oldest_go_first_and_of_a_call_the_last() -> None:
    """Eviction takes blank blocks, then the first call's last block, then those before it, then the second call's."""
    pool = pool_of(7, [1, 2, 3], [11, 12, 13])
    left = []
    for _ in range(7):
        pool.take(1)
        left.append(pool.cached([1, 2, 3], 3) + pool.cached([11, 12, 13], 3))

    assert [6, 5, 4, 3, 2, 1, 0] == left
    assert (0, 0) == (pool.free, pool.cached([1], 1))


def test_what_was_shared_again_is_evicted_later() -> None:
    """A use puts blocks at the end of the order of eviction."""
    pool = pool_of(4, [1, 2], [11, 12])
    pool.release(pool.share([1, 2], 2))
    pool.take(2)

    assert (2, 0) == (pool.cached([1, 2], 2), pool.cached([11, 12], 2))


def test_exposed_blocks_go_first() -> None:
    """Before what was free for longer, in the order of exposure, and of what was exposed together the last first."""
    pool = pool_of(9, [1, 2, 3], [11, 12, 13], [21, 22, 23])
    pool.expose([22, 23])
    pool.expose([12, 13])

    assert [23, 22, 13, 12, 3, 2, 1, 11, 21] == evicted(pool)


def test_orphaned_blocks_go_before_exposed_ones() -> None:
    """Whatever became which first; who is both is what it became last."""
    pool = pool_of(9, [1, 2, 3], [11, 12, 13], [21, 22, 23])
    pool.expose([1, 2, 3])
    pool.orphan([12, 13])
    pool.orphan([3])
    pool.expose([13])

    assert [12, 3, 2, 1, 13, 11, 23, 22, 21] == evicted(pool)


def test_kept_blocks_go_last() -> None:
    """What was exposed and is kept stands where it would if it were released now, the last of it first."""
    pool = pool_of(6, [1, 2, 3], [11, 12, 13])
    pool.expose([1, 2, 3])
    pool.keep([1, 2])

    assert [3, 13, 12, 11, 2, 1] == evicted(pool)


def test_what_was_shared_again_is_exposed_no_more() -> None:
    """What a call takes up again goes when it would have gone without the exposure; the rest stays exposed."""
    pool = pool_of(6, [1, 2, 3], [11, 12, 13])
    pool.expose([1, 2, 3])
    pool.release(pool.share([1, 2], 2))

    assert [3, 13, 12, 11, 2, 1] == evicted(pool)


def test_what_is_held_is_neither_exposed_nor_evicted() -> None:
    """Of a content of which a call holds a copy the other copies go; its own stays, and when it ends is the last."""
    pool = pool_of(6, [1, 2])
    holding = Holding(blank=2)
    pool.take(2)
    pool.fill(holding, [1, 2])
    pool.release(pool.share([1, 2], 2))
    pool.expose([1, 2])
    pool.evict([2])
    assert (4, 2) == (pool.free, pool.cached([1, 2], 2))
    pool.evict([1, 2])
    assert (4, 2) == (pool.free, pool.cached([1, 2], 2))
    pool.release(holding)

    assert [2, 1] == evicted(pool)


def test_what_is_evicted_is_blank() -> None:
    """It is the first to be taken, and nothing else is evicted for it."""
    pool = pool_of(6, [1, 2, 3], [11, 12, 13])
    pool.evict([2, 3, 99])
    pool.take(2)

    assert 1 == pool.cached([1, 2, 3], 3)
    assert 3 == pool.cached([11, 12, 13], 3)
    assert 4 == pool.free


@pytest.mark.parametrize("shared", [True, False])
def test_void_entries_do_not_pile_up(*, shared: bool) -> None:
    """What is remembered of the order of eviction is bounded by the blocks, however often they change their places."""
    keys = list(range(32))
    pool = pool_of(64, keys, keys)
    holding = pool.share(keys, 32)
    for _ in range(1000):
        if shared:
            pool.release(pool.share(keys, 32))
        pool.expose(keys)

    assert pool._entries <= 4 * 64
    assert len(pool._releases) + len(pool._exposed) <= 4 * 64
    pool.release(holding)
    assert [*reversed(keys)] == evicted(pool)
