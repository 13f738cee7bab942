"""Where calls have their KV cache: in blocks of the device, in a tier behind it, or swapped out to host memory.

The blocks that a decode takes are only counted, for all decodes together. Which of them are its own, and what they
hold, is settled when the call leaves the batch: nobody can ask for its output before that.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from autellix.engine.simulation.blocks import BlockPool
from autellix.engine.simulation.calls import Counters
from autellix.engine.simulation.live import LiveCall
from autellix.engine.simulation.tier import Tier
from autellix.engine.simulation.timing import EngineOptions


class KvMemory:
    """The memory of one engine.

    Args:
        options: How the engine works.
        counters: Where to count copies.
    """

    def __init__(self, options: EngineOptions, counters: Counters) -> None:
        self._block_size = options.limits.block_size
        self._pool = BlockPool(options.limits.kv_tokens // self._block_size)
        self._host_blocks_free = options.limits.host_kv_tokens // self._block_size
        self._swap = options.swap if options.preemption == "swap" else None
        self._tier = Tier(options.tier_tokens // self._block_size)
        self.tier_blocks = options.tier_tokens // self._block_size
        """How many blocks there is room for in CPU memory; 0: there is no such tier."""
        self._load = options.swap
        self._prefix_cache = options.prefix_cache
        self._counters = counters

    @property
    def free_blocks(self) -> int:
        """How many blocks nobody holds."""
        return self._pool.free

    @property
    def usage(self) -> float:
        """The share of blocks that are held."""
        return (self._pool.blocks - self._pool.free) / self._pool.blocks

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self._pool.blocks

    def cached(self, chain: Sequence[Any]) -> int:
        """Return how many blocks of a chain are cached, counted up to the first that is not."""
        return self._pool.cached(chain, len(chain))

    def in_tier(self, chain: Sequence[Any], first: int) -> int:
        """Return how many blocks of a chain, from the `first` on, the tier holds, counted up to the first it lacks."""
        return self._tier.found(chain, first, len(chain))

    def expose(self, blocks: Collection[Any]) -> None:
        """Let blocks that no call holds be evicted before all others; of these, the last one first."""
        self._pool.expose(blocks)

    def orphan(self, blocks: Collection[Any]) -> None:
        """Let blocks that no call holds be evicted before the exposed ones; of these, the last one first."""
        self._pool.orphan(blocks)

    def keep(self, blocks: Collection[Any]) -> None:
        """Let blocks that no call holds be neither exposed nor orphaned any more, as if they had been freed now."""
        self._pool.keep(blocks)

    def evict(self, blocks: Collection[Any]) -> None:
        """Evict blocks, unless a call holds them."""
        self._pool.evict(blocks)

    def blocks_of(self, tokens: int) -> int:
        """Return how many blocks `tokens` need."""
        return -(-tokens // self._block_size)

    def check(self, live: LiveCall) -> None:
        """Refuse a call that could never run.

        Raises:
            ValueError: when it is larger than the whole memory, or its blocks have no names.
        """
        computed = live.call.prompt_tokens + live.call.output_tokens - 1
        if self.blocks_of(computed) > self._pool.blocks:
            raise ValueError(f"call {live.call.call_id} has {computed} tokens, more than the KV cache holds")
        if self._prefix_cache and len(live.call.keys) < computed // self._block_size:
            raise ValueError(f"call {live.call.call_id} has {len(live.call.keys)} keys for {computed} tokens")

    def cached_blocks(self, live: LiveCall) -> int:
        """Return how many blocks of a waiting call the prefix cache holds; one token at least is to be computed."""
        if not self._prefix_cache:
            return 0
        return self._pool.cached(live.call.keys, self._most_cached(live))

    def at_hand(self, live: LiveCall) -> int:
        """Return how many tokens of a waiting call need not be computed."""
        if live.swapped_blocks:
            return live.computed
        cached = self.cached_blocks(live)
        return (cached + self._in_tier(live, cached)) * self._block_size

    def needed(self, live: LiveCall, room: int) -> int:
        """Return how many free blocks the whole of a waiting call takes, with `room` of them at hand."""
        blocks = self.blocks_of(live.tokens)
        if blocks > room:  # blocks of its prefix that others hold are not free, and it takes none for them
            blocks -= self._pool.in_use(live.call.keys, self.cached_blocks(live))
        return blocks

    def room(self, free_slots: int, victims: Iterator[int]) -> Callable[[LiveCall], bool]:
        """Return what tells whether one more waiting call fits, beside those asked about before.

        By recompute a newcomer takes a slot and never memory; a victim that can be swapped out leaves it its blocks.

        Args:
            free_slots: How many newcomers need no victim.
            victims: The blocks of the running calls that give way, in that order.
        """
        room = self.free_blocks

        def fits(newcomer: LiveCall) -> bool:
            nonlocal free_slots, room
            if free_slots <= 0 and self._can_swap_out(blocks := next(victims)):
                room += blocks
            free_slots -= 1
            room -= self.needed(newcomer, room)
            return room >= 0

        return fits

    def let_in(self, live: LiveCall) -> float:
        """Give a waiting call what the cache, the tier and the host memory hold; return how long that takes (ms)."""
        cached = self.cached_blocks(live)
        live.holding = self._pool.share(live.call.keys, cached)
        if not live.swapped_blocks:
            return self._load_rest(live, cached)
        self.extend(live, live.computed)
        self.fill(live, live.computed)
        self._host_blocks_free += live.swapped_blocks
        moved, live.swapped_blocks = live.swapped_blocks - cached, 0
        return self._move(moved)

    def missing(self, live: LiveCall, tokens: int) -> int:
        """Return how many blocks a call must get for its first `tokens` tokens."""
        return self.blocks_of(tokens) - len(live.holding)

    def extend(self, live: LiveCall, tokens: int) -> None:
        """Give a call the blocks for its first `tokens` tokens; they must be free."""
        if (blocks := self.missing(live, tokens)) > 0:
            self._pool.take(blocks)
            live.holding.blank += blocks

    def extend_decodes(self, blocks: int) -> None:
        """Give decodes so many blocks; they must be free."""
        self._pool.take(blocks)

    def settle(self, live: LiveCall, tokens: int) -> None:
        """Count the blocks of a decode's first `tokens` tokens as its own; it has been given them."""
        live.holding.blank += max(0, self.missing(live, tokens))

    def fill(self, live: LiveCall, tokens: int) -> None:
        """Cache those blocks of a call that its first `tokens` tokens fill."""
        if self._prefix_cache:
            filled = live.call.keys[len(live.holding.copies) : tokens // self._block_size]
            self._pool.fill(live.holding, filled)
            if self.tier_blocks:
                self._tier.store(filled)

    def put_out(self, live: LiveCall) -> float:
        """Take the blocks of a preempted call: swapped out, or to be computed again; return how long it takes (ms)."""
        blocks = self.blocks_of(live.computed)
        self.release(live)
        if not self._can_swap_out(blocks):
            live.computed = 0
            return 0.0
        self._host_blocks_free -= blocks
        live.swapped_blocks = blocks
        return self._move(blocks)

    def release(self, live: LiveCall) -> None:
        """Free whatever a call has, wherever it is."""
        if live.swapped_blocks:
            self._host_blocks_free += live.swapped_blocks
            live.swapped_blocks = 0
        else:
            self.settle(live, live.computed)
            self.fill(live, live.computed)
            if self.tier_blocks:
                self._tier.used(live.call.keys[: len(live.holding.copies)])
            self._pool.release(live.holding)

    def _most_cached(self, live: LiveCall) -> int:
        """Return how many blocks of a waiting call may be found, at most."""
        return (live.computed if live.swapped_blocks else live.tokens - 1) // self._block_size

    def _in_tier(self, live: LiveCall, cached: int) -> int:
        """Return how many blocks of a waiting call the tier holds behind the first `cached`, which the device holds."""
        return self._tier.found(live.call.keys, cached, self._most_cached(live)) if self.tier_blocks else 0

    def _load_rest(self, live: LiveCall, cached: int) -> float:
        """Copy from the tier what it holds behind the first `cached` blocks; return how long that takes (ms)."""
        loaded = self._in_tier(live, cached)
        live.computed = (cached + loaded) * self._block_size
        if self._load is None or not loaded:
            return 0.0
        self.extend(live, live.computed)
        self.fill(live, live.computed)
        self._counters.loaded_tokens += loaded * self._block_size
        return self._load.move_ms(loaded)

    def _can_swap_out(self, blocks: int) -> bool:
        return self._swap is not None and 0 < blocks <= self._host_blocks_free

    def _move(self, blocks: int) -> float:
        if self._swap is None or not blocks:
            return 0.0
        self._counters.swaps += self._swap.copies(blocks)
        self._counters.swapped_blocks += blocks
        return self._swap.move_ms(blocks)
