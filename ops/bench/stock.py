"""Starts vLLM's own OpenAI server with the tiny model: what the benchmark compares with.

Scheduler, server and defaults are vLLM's; model, numbers and silence are those of the engine worker. The command
`vllm serve` would do the same, but in the CPU distribution it looks for a package called `vllm` and ends.
Arguments are those of `vllm serve`: `python ops/bench/stock.py --port 8000 --max-num-seqs 8`.
"""

import os
import sys
from collections.abc import Sequence

from autellix.engine.vllm_adapter.models import resolve
from autellix.engine.vllm_adapter.start import platform_arguments

MODEL = "tiny"
KV_CACHE_GIB = 1


def serve(arguments: Sequence[str]) -> None:
    """Serve until told to stop.

    Args:
        arguments: Further ones, as `vllm serve` takes them.
    """
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    ours = ["--model", resolve(MODEL), "--served-model-name", MODEL, *platform_arguments(KV_CACHE_GIB)]
    quiet = ["--disable-uvicorn-access-log"]
    import uvloop
    from vllm.entrypoints.launchers.api_server.entry import run_server
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    namespace = make_arg_parser(FlexibleArgumentParser()).parse_args([*ours, *quiet, *arguments])
    validate_parsed_serve_args(namespace)
    uvloop.run(run_server(namespace))


if __name__ == "__main__":
    serve(sys.argv[1:])
