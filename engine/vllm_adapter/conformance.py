"""Checks at start that this vLLM is one that the scheduler was written for.

The scheduler overrides private methods and reads private fields, which any release may change without notice. An
untested version is refused; the operator may say `allow_untested_vllm`, and then it must at least have what is used.
"""

import inspect
from typing import Any

import vllm

TESTED_VERSION = "0.32.0"
"""What `ops/requirements` pins; a test keeps the two equal."""

PARAMETERS = {
    "add_request": ["request"],
    "schedule": ["throttle_prefills"],
    "update_from_output": ["scheduler_output", "model_runner_output"],
    "finish_requests": ["request_ids", "finished_status"],
    "_preempt_request": ["request", "timestamp", "drop_stale_output"],
    "_free_request": ["request", "delay_free_blocks"],
    "_is_blocked_waiting_status": ["status"],
    "_request_blocks_can_be_freed": ["request"],
    "get_request_counts": [],
    "get_kv_cache_usage": [],
    "reset_prefix_cache": ["reset_running_requests", "reset_connector"],
}
"""The methods that are overridden or called, with their parameters."""

FIELDS = [
    "connector",
    "running",
    "requests",
    "waiting",
    "kv_holding_waiting",
    "num_waiting_for_streaming_input",
    "max_num_active_reqs",
    "max_num_scheduled_tokens",
    "block_size",
    "current_step",
    "_inflight_prefills",
    "_pause_state",
    "kv_cache_manager.block_pool.get_num_free_blocks",
    "kv_cache_manager.get_computed_blocks",
    "kv_cache_manager.watermark_blocks",
    "kv_cache_manager.enable_caching",
    "kv_cache_manager.coordinator.single_type_managers",
    "kv_cache_manager.block_pool.num_gpu_blocks",
    "kv_cache_manager.block_pool.get_cached_block",
    "kv_cache_manager.block_pool.evict_blocks",
    "kv_cache_manager.block_pool.cached_block_hash_to_block._cache",
    "kv_cache_manager.block_pool.free_block_queue.fake_free_list_head.next_free_block",
    "kv_cache_manager.block_pool.free_block_queue.fake_free_list_tail.prev_free_block",
    "kv_cache_manager.block_pool.free_block_queue.num_free_blocks",
]
"""What is read of a scheduler, or replaced in it."""

TIER_FIELDS = [
    "connector._vllm_config",
    "connector._kv_cache_config",
    "connector.scheduler.config.blocks_per_chunk",
    "connector.scheduler.manager._num_chunks",
    "connector.scheduler.manager.lookup",
]
"""What is read of one with vLLM's own tier of KV in CPU memory."""


class IncompatibleVllmError(RuntimeError):
    """This vLLM is not one that the scheduler can work in."""


def check_version(*, allow_untested: bool) -> None:
    """Refuse a version that the scheduler was not tested with.

    Raises:
        IncompatibleVllmError: naming both versions, and what to set to try all the same.
    """
    version = vllm.__version__.split("+")[0]
    if version != TESTED_VERSION and not allow_untested:
        raise IncompatibleVllmError(
            f"vLLM {version} is installed; Autellix is tested with {TESTED_VERSION}. "
            "Set engine_worker.allow_untested_vllm = true to try it all the same."
        )


def check_scheduler(scheduler: Any) -> None:
    """Refuse a scheduler of vLLM's that lacks what ours relies on.

    Args:
        scheduler: One of vLLM's, initialised, before anything in it is replaced.

    Raises:
        IncompatibleVllmError: listing everything that is missing or differs.
    """
    has_tier = type(getattr(scheduler, "connector", None)).__name__ == "OffloadingConnector"
    wrong = [name for name in [*FIELDS, *(TIER_FIELDS if has_tier else ())] if not _has(scheduler, name)]
    theirs = next(each for each in type(scheduler).__mro__ if each.__module__.startswith("vllm."))
    for name, expected in PARAMETERS.items():
        method = getattr(theirs, name, None)
        found = [each for each in inspect.signature(method).parameters if each != "self"] if method else None
        if found != expected:
            wrong.append(f"{name}({', '.join(expected)})")
    if wrong:
        raise IncompatibleVllmError(f"vLLM {vllm.__version__} has changed; missing: {', '.join(wrong)}")


def _has(thing: Any, path: str) -> bool:
    for name in path.split("."):
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True
