"""vLLM's own KV cache manager without a model, and what holds of its blocks.

Importing vLLM takes seconds, so it is imported when a test asks.
"""

from typing import Any

BLOCK_SIZE = 4


def vllm_manager(blocks: int, longest: int, *, window: int | None = None, caching: bool = True) -> Any:
    """Return vLLM's KV cache manager with so many blocks, and one more, which it keeps as a placeholder.

    Args:
        blocks: How many.
        longest: Tokens of the longest request.
        window: Tokens that the model's attention sees; None: all.
        caching: Whether there is a prefix cache.
    """
    import torch
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

    shape = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    spec = SlidingWindowSpec(**shape, sliding_window=window) if window else FullAttentionSpec(**shape)
    config = KVCacheConfig(blocks + 1, [], [KVCacheGroupSpec(["layer"], spec)])
    sizes = {"scheduler_block_size": BLOCK_SIZE, "hash_block_size": BLOCK_SIZE}
    return KVCacheManager(config, longest, **sizes, enable_caching=caching)


def vllm_request(request_id: str, tokens: list[int]) -> Any:
    """Return vLLM's own request, with hashes of its blocks."""
    from vllm import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    return Request(
        request_id,
        tokens,
        SamplingParams(max_tokens=1),
        None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def check_blocks(pool: Any) -> None:
    """Hold a block pool against vLLM's own rules: each unused block is free, once; names lead to their blocks."""
    queue = pool.free_block_queue
    free = [block.block_id for block in queue.get_all_free_blocks()]
    unused = {block.block_id for block in pool.blocks if block.ref_cnt == 0 and not block.is_null}
    named = {(block.block_hash, block.block_id) for block in pool.blocks if block.block_hash}
    found = {name: each if isinstance(each, dict) else [each.block_id]
             for name, each in pool.cached_block_hash_to_block._cache.items()}  # fmt: skip
    assert len(free) == len(set(free)) == pool.get_num_free_blocks()
    assert unused == set(free)
    assert free[::-1] == _backwards(queue)
    assert named == {(name, number) for name, numbers in found.items() for number in numbers}


def _backwards(queue: Any) -> list[int]:
    """Return the numbers of the free blocks, the last first."""
    numbers, block = [], queue.fake_free_list_tail.prev_free_block
    while block is not queue.fake_free_list_head:
        numbers.append(block.block_id)
        block = block.prev_free_block
    return numbers
