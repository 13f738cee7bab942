"""vLLM's prefix cache as the gate needs it: what of a program is there, and what is evicted first.

Rules:
* vLLM takes new blocks from the front of its free queue: those that hold nothing it could find again, then cached ones,
  the longest free first. Between the two stand the orphaned ones, then the exposed ones, each in the order in which
  they became that.
* A block that a request takes up again is neither any more; freed again it stands where vLLM puts it.
* Several blocks may hold one content. What is done to a content is done to all of them that are free.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import BlockHash, FreeKVCacheBlockQueue, KVCacheBlock, make_block_hash_with_group_id

from autellix.engine.vllm_adapter.cpu_tier import GROUP, CpuTier

ORPHANED, EXPOSED = 0, 1


class FreeBlocks(FreeKVCacheBlockQueue):
    """vLLM's free queue, which also knows where its first parts end: blank blocks and orphaned ones, then exposed ones.

    Args:
        blocks: All free blocks, blank ones, in order.
    """

    def __init__(self, blocks: list[KVCacheBlock]) -> None:
        super().__init__(blocks)
        self.all_are_blank()

    def all_are_blank(self) -> None:
        """Note that no free block is cached any more."""
        self._ends = [self.fake_free_list_tail.prev_free_block] * 2

    def move(self, block: KVCacheBlock, part: int) -> None:
        """Move a free block to the end of a part, `ORPHANED` or `EXPOSED`."""
        self.remove(block)
        before = self._ends[part]
        after = before.next_free_block
        block.prev_free_block, block.next_free_block = before, after
        before.next_free_block = after.prev_free_block = block
        self._ends[part:] = [block if end is before else end for end in self._ends[part:]]
        self.num_free_blocks += 1

    def remove(self, block: KVCacheBlock) -> None:
        """Take a block out, wherever it stands."""
        self._ends = [block.prev_free_block if end is block else end for end in self._ends]
        super().remove(block)

    def popleft(self) -> KVCacheBlock:
        """Take the first block out.

        Raises:
            ValueError: when there is none.
        """
        block = super().popleft()
        self._find_end_again()
        return block

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take the first `n` blocks out; there must be so many."""
        blocks: list[KVCacheBlock] = super().popleft_n(n)
        self._find_end_again()
        return blocks

    def prepend_n(self, blocks: list[KVCacheBlock]) -> None:
        """Put blank blocks in front of all others."""
        super().prepend_n(blocks)
        if blocks:
            self._ends = [blocks[-1] if end is self.fake_free_list_head else end for end in self._ends]

    def _find_end_again(self) -> None:
        """Note that a part is empty if its end was taken out."""
        self._ends = [end if end.next_free_block else self.fake_free_list_head for end in self._ends]


class ProgramBlocks:
    """The prefix cache of one engine, for `engine.policy.room`.

    Args:
        pool: vLLM's blocks, none of them cached; its free queue is replaced.
        tier: What keeps copies of them in CPU memory, if anything does.
    """

    def __init__(self, pool: BlockPool, tier: CpuTier | None = None) -> None:
        self._pool = pool
        self._tier = tier
        self._free = pool.free_block_queue = FreeBlocks(pool.free_block_queue.get_all_free_blocks())

    def cached(self, chain: Sequence[BlockHash]) -> int:
        """Return how many blocks of a chain are cached: its first ones, found by bisection.

        Who takes up a block takes up those before it and frees them later, so they are evicted later, too.
        """
        return bisect_left(chain, True, key=lambda name: not self._is_cached(name))  # noqa: FBT003 - not a flag

    def in_tier(self, chain: Sequence[BlockHash], first: int) -> int:
        """Return how many blocks of a chain, from the `first` on, the tier holds, counted up to the first it lacks."""
        return self._tier.found(chain, first) if self._tier else 0

    def expose(self, blocks: Collection[BlockHash]) -> None:
        """Let blocks that no request holds be evicted before all others; of these, the last one first."""
        self._move(blocks, EXPOSED)

    def orphan(self, blocks: Collection[BlockHash]) -> None:
        """Let blocks that no request holds be evicted before the exposed ones; of these, the last one first."""
        self._move(blocks, ORPHANED)

    def keep(self, blocks: Collection[BlockHash]) -> None:
        """Let blocks that no request holds be neither exposed nor orphaned any more, as if they had been freed now."""
        kept = self._free_ones(blocks)[::-1]
        for block in kept:
            self._free.remove(block)
        self._free.append_n(kept)

    def evict(self, blocks: Collection[BlockHash]) -> None:
        """Evict blocks, unless a request holds them."""
        evicted = self._free_ones(blocks)
        self._pool.evict_blocks({block.block_id for block in evicted})
        for block in evicted:
            self._free.remove(block)
        self._free.prepend_n(evicted)

    def was_reset(self) -> None:
        """Note that vLLM evicted everything."""
        self._free.all_are_blank()

    def _move(self, blocks: Collection[BlockHash], part: int) -> None:
        for block in reversed(self._free_ones(blocks)):
            self._free.move(block, part)

    def _is_cached(self, name: BlockHash) -> bool:
        return self._pool.get_cached_block(name, [GROUP]) is not None

    def _free_ones(self, names: Iterable[BlockHash]) -> list[KVCacheBlock]:
        return [block for name in names for block in self._copies(name) if block.ref_cnt == 0]

    def _copies(self, name: BlockHash) -> list[KVCacheBlock]:
        """Return all blocks of one content."""
        known = self._pool.cached_block_hash_to_block._cache  # noqa: SLF001 - its methods tell of one copy only
        found = known.get(make_block_hash_with_group_id(name, GROUP))
        if found is None:
            return []
        return list(found.values()) if isinstance(found, dict) else [found]
