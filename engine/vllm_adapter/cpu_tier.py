"""vLLM's tier of KV blocks in CPU memory, as the gate needs it: how large it is, and what is in it.

`--kv-offloading-size` (or a `kv_transfer_config` that names the connector) makes vLLM's `OffloadingConnector` copy
every full block that was computed to CPU memory, and back when a request needs it and the device has it no more. It
evicts what was used the longest ago. How many blocks it has room for vLLM works out from the size and from its bytes a
block, all workers together; that number is read here. Offloading needs CUDA or XPU; only the scheduler's half of it,
which is all that is read here, can be made without.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
    _StatsKey,
    _TransferMetricName,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.outputs import ModelRunnerOutput

GROUP = 0
"""The only group of layers: the gate is for models with one (`engine_gate.py`)."""


class CpuTier:
    """The tier of one engine.

    Args:
        connector: vLLM's, the scheduler's half.
    """

    def __init__(self, connector: OffloadingConnector) -> None:
        self._manager = connector.scheduler.manager
        self._chunk = connector.scheduler.config.blocks_per_chunk
        """Blocks that are copied together, and found by the name of the last of them."""
        self.blocks: int = self._manager._num_chunks * self._chunk  # noqa: SLF001 - vLLM tells it nobody
        """How many it has room for."""
        offloading = build_offloading_config(connector._vllm_config, connector._kv_cache_config)  # noqa: SLF001 - as above
        self._token_bytes = offloading.worker_kv_bytes_per_block / offloading.groups[GROUP].tokens_per_block
        """Of one worker."""

    def found(self, chain: Sequence[BlockHash], first: int) -> int:
        """Return how many blocks of a chain, from the `first` on, it holds, counted up to the first that it lacks."""
        chunks = range(first // self._chunk, len(chain) // self._chunk)
        held = sum(1 for _ in takewhile(lambda chunk: self._holds(chain[(chunk + 1) * self._chunk - 1]), chunks))
        end: int = (first // self._chunk + held) * self._chunk
        return max(0, end - first)

    def copied(self, output: ModelRunnerOutput) -> tuple[float, int]:
        """Return how long (ms) the copies back took that ended with a step, and of how many tokens they were.

        vLLM tells it bytes and seconds summed over all workers, which copy at the same time each its part of a token.
        """
        connector = output.kv_connector_output
        stats = connector.kv_connector_stats if connector else None
        if not isinstance(stats, OffloadingConnectorStats) or not self._token_bytes:
            return 0.0, 0
        told = stats.data[_StatsKey.DATA]
        loaded = sum(told.get(_TransferMetricName.LOAD_BYTES, {}).values())
        return 1000 * sum(told.get(_TransferMetricName.LOAD_TIME, {}).values()), round(loaded / self._token_bytes)

    def _holds(self, name: BlockHash) -> bool:
        nobody = ReqContext(req_id="")
        return self._manager.lookup(make_offload_key(name, GROUP), nobody) is LookupResult.HIT


def cpu_tier(connector: Any) -> CpuTier | None:
    """Return the tier that a scheduler's connector keeps; None: it keeps none, or keeps blocks in another way."""
    if type(connector) is not OffloadingConnector or type(connector.scheduler.manager) is not CPUOffloadingManager:
        return None
    return CpuTier(connector)
