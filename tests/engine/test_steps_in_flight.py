"""Two steps in flight, as vLLM has them on a GPU, under any mix of calls, held against a slow, plain account.

On a CPU vLLM switches async scheduling off, so the engines of the other tests never have a step in flight. Here the
real scheduler is stepped without a model: the tokens are made up, and the clock is the test's.
"""

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from vllm import EngineArgs
from vllm.config import VllmConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import init_none_hash
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.structured_output import StructuredOutputManager

from autellix.engine.policy import POLICIES, fitting
from autellix.engine.vllm_adapter import models
from autellix.engine.vllm_adapter import scheduler as adapter
from autellix.engine.vllm_adapter.options import SchedulerOptions, to_config
from autellix.engine.vllm_adapter.reports import ReportReceiver
from autellix.engine.vllm_adapter.schedulers import AsyncProgramScheduler
from tests.engine.world import BLOCK, BLOCKS, BUDGET, PROGRAMS, SLOTS, World

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def config() -> VllmConfig:
    """Return the configuration of an engine with four slots, 576 tokens of KV cache and 128 tokens a step."""
    shape = {"max_num_seqs": SLOTS, "max_num_batched_tokens": BUDGET, "max_model_len": 512, "block_size": BLOCK}
    config = EngineArgs(models.resolve("tiny"), **shape).create_engine_config()
    config.cache_config.num_gpu_blocks = BLOCKS
    return config


@pytest.fixture
def make_world(config: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Return what makes a world, once a test, given its seed, its surprises and the scheduler's options."""
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=config.model_config.dtype)
    cache = KVCacheConfig(BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["one layer"], spec)])
    init_none_hash(sha256)
    monkeypatch.setattr(fitting, "KNOWN_MIN", 3)  # the ladder moves within a test
    monkeypatch.setattr(fitting, "FIT_EVERY", 4)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        receiver = ReportReceiver(Path(folder) / "reports")  # a short path, as Unix sockets need
        stack.callback(receiver.close)

        def make(seed: int, *, surprises: float, **options: Any) -> World:
            options |= {"report_socket": str(receiver.path), "first_quantum_ms": 5.0, "beta": 0.5}
            config.additional_config = to_config(SchedulerOptions(**options))
            scheduler = AsyncProgramScheduler(config, cache, StructuredOutputManager(config), BLOCK)
            stack.callback(scheduler.shutdown)
            world = World(scheduler, receiver, random.Random(seed), surprises)
            put_decodes_first = scheduler._put_decodes_first
            monkeypatch.setattr(adapter, "now_ms", lambda: world.now_ms)
            monkeypatch.setattr(scheduler, "_put_decodes_first", lambda: world.check_order(put_decodes_first))
            return world

        yield make


def some_call(world: World) -> None:
    """Let a call of any kind arrive: short, or with a prompt of several steps; known to the prefix cache, or not."""
    chance = world.chance
    shared = chance.choice([[], [1] * 100, [2] * 250])
    prompts = [shared + chance.choices(range(10, 99), k=chance.choice([1, 20, 60, 200])) for _ in range(2)]
    facts: dict[str, Any] = {
        "service_ms": chance.choice([0.0, 3.0, 40.0, 1000.0]),
        "waiting_ms": chance.choice([0.0, 0.0, 1e5]),
    }
    facts["critical_path_ms"] = facts["service_ms"] / chance.choice([1, 5])
    if world.scheduler._gate:
        facts |= {"program_id": f"p{chance.randrange(PROGRAMS)}", "thread_id": chance.choice("ab")}
    several, n, priority = chance.choice([1, 1, 2]), chance.choice([1, 1, 2]), chance.choice([0] * 8 + [-1, 5])
    world.add(*prompts[:several], n=n, priority=priority, max_tokens=chance.choice([1, 2, 10, 50]), **facts)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("interval", "gate"), [(1, "off"), (3, "off"), (1, "fair"), (2, "plain")])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_any_mix_of_calls(make_world: Callable[..., World], policy: str, interval: int, gate: str, seed: int) -> None:
    """After every event the scheduler agrees with the account; each call is reported once, and nothing is left."""
    world = make_world(seed, surprises=0.03, policy=policy, policy_interval_steps=interval, gate=gate)
    for _ in range(150):
        happens = world.chance.random()
        if happens < 0.4 and len(world.scheduler.requests) < 4 * SLOTS:
            some_call(world)
        elif 0.4 < happens < 0.45:
            world.abort_some()
        elif happens > 0.98:
            world.scheduler.reset_prefix_cache(reset_running_requests=True)
        for _ in range(world.chance.choice([0, 1, 2, 4])):
            world.pass_time(world.chance.choice([0.0, 0.0, 0.25, 8.0]))
            world.turn()
    world.finish()

    world.check_nothing_is_left()
    assert world.policy_steps == -(-world.scheduler.current_step // interval)
    assert world.charged_waiting > 0 or gate != "off"
    assert (world.held > 0) == (gate != "off")


def test_a_paused_engine_puts_nobody_out(make_world: Callable[..., World]) -> None:
    """While new calls are not let in, better ones displace nobody, for the slots would stay empty; later they do."""
    world = make_world(0, surprises=0.0, policy="plas")
    old = {world.add([number], service_ms=1e6) for number in range(SLOTS)}
    world.turn(5)
    world.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    new = {world.add([number]) for number in range(2)}
    world.turn(5)
    paused = {name for name, life in world.lives.items() if world.runs(life)}
    world.scheduler.set_pause_state(PauseState.UNPAUSED)
    world.turn()
    unpaused = {name for name, life in world.lives.items() if world.runs(life)}
    world.finish()

    assert old == paused
    assert (new, SLOTS) == (unpaused - old, len(unpaused))
    world.check_nothing_is_left()
