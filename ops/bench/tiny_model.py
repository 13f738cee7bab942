"""vLLM's configuration for the tiny model, as the engine worker starts it; the measurements of this folder share it."""

import os
from typing import Any

from autellix.engine.vllm_adapter.models import resolve
from autellix.engine.vllm_adapter.start import platform_arguments

KV_CACHE_GIB = 1
SLOTS = 256


def tiny_config(*arguments: str) -> Any:
    """Return a `VllmConfig` with 256 slots.

    vLLM reads the environment that is prepared here when it is first imported: callers import it afterwards.

    Args:
        arguments: Further ones, as `vllm serve` takes them.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    ours = ["--model", resolve("tiny"), "--max-num-seqs", str(SLOTS), *platform_arguments(KV_CACHE_GIB)]
    from vllm.engine.arg_utils import EngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    namespace = make_arg_parser(FlexibleArgumentParser()).parse_args([*ours, *arguments])
    return EngineArgs.from_cli_args(namespace).create_engine_config()
