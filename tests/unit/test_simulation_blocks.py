"""The simulated KV blocks under any sequence of events: none is lost, none in use is evicted, prefixes stay whole."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from autellix.engine.simulation.blocks import BlockPool, Holding

BLOCKS = 24
LONGEST = 12


def chain(stem: int, fork: int) -> list[int]:
    """Return the keys of one content: two contents of one stem are equal up to the smaller fork."""
    return [stem * 1000 + place if place < fork else stem * 1000 + fork * 20 + place + 100 for place in range(LONGEST)]


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


def test_the_oldest_go_first_and_of_a_call_the_last() -> None:
    """Eviction takes blank blocks, then the first call's last block, then those before it, then the second call's."""
    pool = BlockPool(7)
    for keys in ([1, 2, 3], [11, 12, 13]):
        holding = Holding(blank=3)
        pool.take(3)
        pool.fill(holding, keys)
        pool.release(holding)
    left = []
    for _ in range(7):
        pool.take(1)
        left.append(pool.cached([1, 2, 3], 3) + pool.cached([11, 12, 13], 3))

    assert [6, 5, 4, 3, 2, 1, 0] == left
    assert (0, 0) == (pool.free, pool.cached([1], 1))


def test_what_was_shared_again_is_evicted_later() -> None:
    """A use puts blocks at the end of the order of eviction."""
    pool = BlockPool(4)
    for keys in ([1, 2], [11, 12]):
        holding = Holding(blank=2)
        pool.take(2)
        pool.fill(holding, keys)
        pool.release(holding)
    pool.release(pool.share([1, 2], 2))
    pool.take(2)

    assert (2, 0) == (pool.cached([1, 2], 2), pool.cached([11, 12], 2))


def test_void_entries_do_not_pile_up() -> None:
    """What is remembered of the order of release is bounded by the blocks, however often they are shared."""
    pool = BlockPool(32)
    keys = list(range(32))
    holding = Holding(blank=32)
    pool.take(32)
    pool.fill(holding, keys)
    pool.release(holding)
    for _ in range(1000):
        pool.release(pool.share(keys, 32))

    assert pool._entries <= 4 * 32
    assert len(pool._releases) <= 4 * 32
