"""vLLM's own tier of KV in CPU memory before the gate: the scheduler's half of it, which needs no GPU.

Offloading itself needs CUDA or XPU: here nothing is ever copied, but by the words that vLLM's worker would say.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm import EngineArgs, SamplingParams
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.kv_offload.base import ReqContext, make_offload_key
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from autellix.engine.vllm_adapter import conformance, models
from autellix.engine.vllm_adapter.conformance import IncompatibleVllmError, check_scheduler
from autellix.engine.vllm_adapter.cpu_tier import CpuTier, cpu_tier
from autellix.engine.vllm_adapter.engine_gate import _why_off
from autellix.engine.vllm_adapter.options import SchedulerOptions, to_config
from autellix.engine.vllm_adapter.reports import ReportReceiver
from autellix.engine.vllm_adapter.schedulers import program_scheduler

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

BLOCK, BLOCKS = 32, 17
"""One of the blocks is vLLM's placeholder."""
SPEC = {"block_size": BLOCK, "num_kv_heads": 2, "head_size": 16}
LAYERS = ["one", "two"]
BLOCK_BYTES = 2 * BLOCK * 2 * 16 * 4 * len(LAYERS)
"""Keys and values of two heads of 16 in float32, in two layers."""


@pytest.fixture
def scheduler() -> Iterator[Callable[..., Any]]:
    """Return what makes real schedulers of 16 blocks, with so many GiB of CPU memory or whatever else is said."""
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        receiver = ReportReceiver(Path(folder) / "reports")  # a short path, as Unix sockets need
        stack.callback(receiver.close)

        def make(**arguments: Any) -> Any:
            shape = {"max_num_seqs": 4, "max_num_batched_tokens": 512, "max_model_len": 512, "block_size": BLOCK}
            config = EngineArgs(models.resolve("tiny"), dtype="float32", **shape, **arguments).create_engine_config()
            config.cache_config.num_gpu_blocks = BLOCKS
            spec = FullAttentionSpec(**SPEC, dtype=config.model_config.dtype)
            cache = KVCacheConfig(BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(LAYERS, spec)])
            options = SchedulerOptions(policy="auto", gate="fair", report_socket=str(receiver.path))
            config.additional_config = to_config(options)
            made = program_scheduler(config, cache, StructuredOutputManager(config), BLOCK)
            stack.callback(made.shutdown)
            return made

        yield make


def named(blocks: int) -> list[Any]:
    """Return the names of so many blocks of a prompt."""
    hasher = get_request_block_hasher(BLOCK, sha256)
    request = Request("r", list(range(blocks * BLOCK)), SamplingParams(max_tokens=1), None, block_hasher=hasher)
    return list(request.block_hashes)


def stored(tier: CpuTier, names: list[Any], chunk: int = 1) -> None:
    """Let vLLM's worker say that these blocks were copied to CPU memory."""
    keys, request = [make_offload_key(name, 0) for name in names[chunk - 1 :: chunk]], ReqContext(req_id="r")
    assert tier._manager.prepare_store(keys, request)
    tier._manager.complete_store(keys, request)


@pytest.mark.parametrize("gib", [0.0009765625, 0.25])
def test_the_gate_budgets_on_what_vllm_has_room_for(scheduler: Callable[..., Any], gib: float) -> None:
    """`--kv-offloading-size` over vLLM's own bytes of a block, in blocks; the device stays what it was."""
    sut = scheduler(kv_offloading_size=gib)
    gate: Any = sut._gate
    assert gate is not None
    expected = int(gib * 2**30) // BLOCK_BYTES

    assert (expected, BLOCKS - 1, True) == (
        gate._gate._room.blocks, gate._gate._device.blocks, gate._gate._device.is_short
    )  # fmt: skip


def test_a_connector_may_be_named_in_full(scheduler: Callable[..., Any]) -> None:
    """`kv_transfer_config` says the same with a size in bytes, and may have several blocks copied together."""
    extra = {"cpu_bytes_to_use": 41 * BLOCK_BYTES, "blocks_per_chunk": 2}
    transfer = KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=extra)
    tier = cpu_tier(scheduler(kv_transfer_config=transfer).connector)
    assert tier is not None
    assert 40 == tier.blocks
    names = named(7)
    stored(tier, names[:4], chunk=2)

    assert [4, 3, 2, 1, 0, 0] == [tier.found(names, first) for first in range(6)]


def test_without_a_tier_nothing_changes(scheduler: Callable[..., Any]) -> None:
    """The gate has what the device has."""
    gate: Any = scheduler()._gate

    assert (BLOCKS - 1, False) == (gate._gate._room.blocks, gate._gate._device.is_short)


def test_what_is_in_the_tier(scheduler: Callable[..., Any]) -> None:
    """Blocks are found from a place on, up to the first that is missing; one that is still being copied is."""
    sut: Any = scheduler(kv_offloading_size=0.25)
    tier, names = sut._gate._tier, named(6)
    stored(tier, names[:4])
    tier._manager.prepare_store([make_offload_key(names[4], 0)], ReqContext(req_id="r"))

    assert [4, 2, 0, 0] == [tier.found(names, first) for first in (0, 2, 4, 5)]
    assert 3 == sut._gate._blocks.in_tier(names, 1)


def test_the_time_of_copies_is_measured(scheduler: Callable[..., Any]) -> None:
    """VLLM's worker tells bytes and seconds, by step; the gate learns the time of a token; stores do not count."""
    sut: Any = scheduler(kv_offloading_size=0.25)
    stats = OffloadingConnectorStats()
    stats.increase_counter("vllm:kv_offload_load_bytes", 5 * BLOCK_BYTES)
    stats.increase_counter("vllm:kv_offload_load_time", 0.004)
    stats.increase_counter("vllm:kv_offload_store_bytes", 999)
    stats.increase_counter("vllm:kv_offload_store_time", 9.0)
    output = SimpleNamespace(kv_connector_output=SimpleNamespace(kv_connector_stats=stats))
    sut._gate.step(1.0, output, prompt_tokens=0, tokens=0, now_ms=1.0)

    assert 4 / (5 * BLOCK) == pytest.approx(sut._gate._gate.time.copy_token_ms)
    sut._gate.step(1.0, SimpleNamespace(kv_connector_output=None), prompt_tokens=0, tokens=0, now_ms=2.0)
    assert 4 / (5 * BLOCK) == pytest.approx(sut._gate._gate.time.copy_token_ms)


def test_other_connectors_have_no_gate(scheduler: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what a connector keeps that is not vLLM's own."""
    sut: Any = scheduler(kv_offloading_size=0.25)
    assert _why_off(sut) == ""
    with monkeypatch.context() as other:
        other.setattr(sut, "connector", object())

        assert "a KV connector keeps blocks" in _why_off(sut)


def test_what_is_read_of_it_is_checked(scheduler: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM whose tier lacks something is refused by name; without a tier that does not matter."""
    with_tier, without = scheduler(kv_offloading_size=0.25), scheduler()
    check_scheduler(with_tier)
    monkeypatch.setattr(conformance, "TIER_FIELDS", [*conformance.TIER_FIELDS, "connector.no_such_thing"])
    check_scheduler(without)

    with pytest.raises(IncompatibleVllmError, match=r"missing: connector\.no_such_thing$"):
        check_scheduler(with_tier)
