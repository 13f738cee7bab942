"""Starts a vLLM engine with our scheduler in it, and warms it up."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from autellix.engine.executor import EngineCall, EngineInfo, ProgramOver, Refusal
from autellix.engine.vllm_adapter.executor import VllmExecutor
from autellix.engine.vllm_adapter.facts import give_facts
from autellix.engine.vllm_adapter.notices import NoticeSender
from autellix.engine.vllm_adapter.options import SchedulerOptions, to_config
from autellix.engine.vllm_adapter.reports import ReportReceiver
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

SCHEDULER = "autellix.engine.vllm_adapter.schedulers.program_scheduler"


@asynccontextmanager
async def vllm_executor(arguments: Sequence[str], options: SchedulerOptions) -> AsyncIterator[VllmExecutor]:
    """Start the engine and yield it when it is warm; leaving shuts it down.

    Args:
        arguments: As `vllm serve` takes them; the scheduler's are added here.
        options: What the scheduler goes by; its sockets are named here.
    """
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.api_server.entry import build_async_engine_client
    from vllm.entrypoints.launchers.app import build_app
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    with tempfile.TemporaryDirectory(prefix="autellix-") as folder:
        reports = ReportReceiver(Path(folder) / "reports")
        sockets = {"report_socket": str(reports.path), "notice_socket": str(Path(folder) / "notices")}
        options = msgspec.structs.replace(options, **sockets)
        config = ["--scheduler-cls", SCHEDULER, "--additional-config", json.dumps(to_config(options))]
        namespace = make_arg_parser(FlexibleArgumentParser()).parse_args([*config, *arguments])
        async with build_async_engine_client(namespace) as engine:
            tasks = await engine.get_supported_tasks()
            give_facts(engine)
            app = build_app(namespace, tasks, engine.model_config)
            await init_app_state(engine, app.state, namespace, tasks)
            notices = NoticeSender(sockets["notice_socket"])
            executor = VllmExecutor(app, engine, _info(engine, namespace, options), reports, notices)
            loop = asyncio.get_running_loop()
            loop.add_reader(reports.fileno(), executor.take_reports)
            try:
                await asyncio.create_task(warm_up(executor))  # a task of its own: see `facts`
                yield executor
            finally:
                loop.remove_reader(reports.fileno())
                reports.close()
                notices.close()


QUIET = ["--logging-config.formatter", "json", "--no-use-tqdm-on-load"]
"""Lines for a log: no progress bars, and JSON like ours."""

ONE_PROCESS = [
    "--distributed-executor-backend",
    "autellix.engine.vllm_adapter.one_process.OneProcessExecutor",
]
"""The model in the process of the engine's scheduler. Who wants several processes, for tensor parallelism, says
`--distributed-executor-backend mp` among the arguments."""

BIND = "VLLM_CPU_OMP_THREADS_BIND"
"""vLLM's variable that names the engine's core; see `one_process`."""

FEW_CORES = 4
"""Up to so many, two cores that spin are taken to be worse than threads that are not bound; measured with two."""


def platform_arguments(kv_cache_gib: int) -> list[str]:
    """Prepare the environment for the platform vLLM finds here, and return the arguments it needs there."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_REGEX_COMPILATION_TIMEOUT_S", "1")  # the worker's loop and heartbeat wait for it
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # of torch, in vLLM's processes
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return QUIET
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(kv_cache_gib))
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # it would need a C++ compiler on the machine
    eager = "--enforce-eager"  # compiling takes minutes on a CPU and gains little for small models
    bound = os.environ.get(BIND, "").isdecimal()  # a worker process would inherit our cores, without that one
    few = bound or len(os.sched_getaffinity(0)) <= FEW_CORES
    dtype = [] if _computes_bfloat16() else ["--dtype", "float32"]
    return [*QUIET, eager, *dtype, *(ONE_PROCESS if few else [])]


def _computes_bfloat16() -> bool:
    """Tell whether this CPU has instructions for bfloat16; x86 without them emulates it, several times slower."""
    import torch

    able = torch.cpu.get_capabilities()
    return bool(able["architecture"] != "x86_64" or able["avx512_bf16"] or able["amx_bf16"])


def _info(engine: Any, namespace: Any, options: SchedulerOptions) -> EngineInfo:
    config = engine.vllm_config
    return EngineInfo(
        models=tuple(namespace.served_model_name or [namespace.model]),
        policy=options.policy,
        slots=config.scheduler_config.max_num_seqs,
        kv_tokens=(config.cache_config.num_gpu_blocks or 0) * config.cache_config.block_size,
        max_model_len=config.model_config.max_model_len,
    )


WARM_UPS: tuple[dict[str, Any], ...] = (
    {"max_tokens": 2, "stream": True},
    {"max_tokens": 2, "logprobs": True, "top_logprobs": 1},
    {"max_tokens": 2, "structured_outputs": {"choice": ["a", "b"]}},
)
"""The first call of each kind sets things up for seconds and would stall every stream of the engine."""


async def warm_up(executor: VllmExecutor) -> None:
    """Run one call of each kind that compiles something.

    Raises:
        RuntimeError: when the engine refuses one; it would refuse the clients' too.
    """
    program_id = ProgramId("warm-up")
    for number, fields in enumerate(WARM_UPS):
        call_id = CallId(f"warm-up-{number}")
        body = {"model": executor.info.models[0], "messages": [{"role": "user", "content": "Hi"}], **fields}
        text, stream = msgspec.json.encode(body), bool(fields.get("stream"))
        call = EngineCall(
            call_id, program_id, ThreadId("main"), "/v1/chat/completions", text, stream=stream, program=ProgramFacts()
        )
        async for output in executor.run(call):
            if isinstance(output, Refusal):
                raise RuntimeError(f"warm-up failed: {output.error.message}")  # noqa: TRY004 - no type is at fault
        await executor.account(call_id)
    executor.tell(ProgramOver(program_id=program_id))
