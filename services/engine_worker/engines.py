"""Starts the engine that the settings ask for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autellix.engine.executor import EngineInfo, Executor
from autellix.engine.policy import default_gate
from autellix.engine.simulated import SimulatedExecutor
from autellix.services import tracing
from autellix.services.config import EngineWorkerSettings, StartError

NO_STATS = "--disable-log-stats"
"""vLLM's argument for who does not want its series, nor the little time that they cost."""


GRAMMARS = '{"backend": "xgrammar"}'
"""vLLM's own choice differs from call to call, but an engine compiles all by the first one chosen: what that one lacks
would be passed over in silence. So it is named, and what it lacks is refused."""


@asynccontextmanager
async def executor_for(settings: EngineWorkerSettings) -> AsyncIterator[Executor]:
    """Yield the engine, up and warm; leaving shuts it down.

    Raises:
        StartError: when its model cannot be prepared.
    """
    if settings.backend == "simulated":
        yield SimulatedExecutor(_simulated_info(settings), step_ms=settings.simulated_step_ms)
        return
    # Imports torch: only where an engine runs.
    from autellix.engine.vllm_adapter.model_smollm2 import ModelError
    from autellix.engine.vllm_adapter.models import resolve
    from autellix.engine.vllm_adapter.options import SchedulerOptions
    from autellix.engine.vllm_adapter.start import platform_arguments, vllm_executor

    options = SchedulerOptions(
        policy=settings.policy,
        gate=settings.gate or default_gate(settings.policy),
        first_quantum_ms=settings.first_quantum_ms,
        queues=settings.queues,
        fit_ladder=settings.fit_ladder,
        beta=settings.beta,
        policy_interval_steps=settings.policy_interval_steps,
        allow_untested_vllm=settings.allow_untested_vllm,
    )
    try:
        model = await asyncio.to_thread(resolve, settings.model)
    except ModelError as error:
        raise StartError(str(error)) from error
    arguments = [*platform_arguments(settings.kv_cache_gib), *vllm_arguments(settings, model)]
    async with vllm_executor(arguments, options) as executor:
        yield executor


def vllm_arguments(settings: EngineWorkerSettings, model: str) -> list[str]:
    """Return the settings as `vllm serve` takes them; the user's own come last and win."""
    named = [
        *("--model", model),
        *("--served-model-name", settings.model),
        *("--max-num-seqs", str(settings.slots)),
        "--enable-auto-tool-choice",
        *("--tool-call-parser", "hermes"),
        *("--structured-outputs-config", GRAMMARS),
    ]
    traced = tracing.endpoint()
    if traced and NO_STATS not in settings.vllm_args:  # vLLM makes its spans of these
        named += ["--otlp-traces-endpoint", traced]
    if settings.max_model_len:
        named += ["--max-model-len", str(settings.max_model_len)]
    return [*named, *settings.vllm_args]


def _simulated_info(settings: EngineWorkerSettings) -> EngineInfo:
    return EngineInfo(
        models=(settings.model,),
        policy=settings.policy,
        slots=settings.slots,
        kv_tokens=0,
        max_model_len=settings.max_model_len or 2**20,
    )
