"""Starts the engine that the settings ask for."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autellix.engine.executor import EngineInfo, Executor
from autellix.engine.simulated import SimulatedExecutor
from autellix.services.config import EngineWorkerSettings


@asynccontextmanager
async def executor_for(settings: EngineWorkerSettings) -> AsyncIterator[Executor]:
    """Yield the engine, up and warm; leaving shuts it down."""
    if settings.backend == "simulated":
        yield SimulatedExecutor(_simulated_info(settings))
        return
    from autellix.engine.vllm_adapter.options import SchedulerOptions
    from autellix.engine.vllm_adapter.start import vllm_executor

    options = SchedulerOptions(
        policy=settings.policy,
        first_quantum_ms=settings.first_quantum_ms,
        queues=settings.queues,
        beta=settings.beta,
        policy_interval_steps=settings.policy_interval_steps,
    )
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(settings.kv_cache_gib))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    async with vllm_executor(vllm_arguments(settings), options) as executor:
        yield executor


def vllm_arguments(settings: EngineWorkerSettings) -> list[str]:
    """Return the settings as `vllm serve` takes them; the user's own come last and win."""
    folder = resolve(settings.model)
    named = [
        *("--model", str(folder)),
        *("--served-model-name", settings.model),
        *("--max-num-seqs", str(settings.slots)),
        "--enable-auto-tool-choice",
        *("--tool-call-parser", "hermes"),
        "--disable-log-stats",
        "--enforce-eager",
    ]
    if settings.max_model_len:
        named += ["--max-model-len", str(settings.max_model_len)]
    if settings.model in DUMMY_WEIGHTS:
        named += ["--load-format", "dummy"]
    return [*named, *settings.vllm_args]


def _simulated_info(settings: EngineWorkerSettings) -> EngineInfo:
    return EngineInfo(
        models=(settings.model,),
        policy=settings.policy,
        slots=settings.slots,
        kv_tokens=0,
        max_model_len=settings.max_model_len or 2**20,
    )
