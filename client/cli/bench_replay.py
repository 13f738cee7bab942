"""`autellix bench replay`: one load against one server."""

import argparse
import asyncio
import importlib.util
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.console import Console

from autellix.client.bench import report
from autellix.client.bench.load import Load, Scale
from autellix.client.bench.measures import Run, summarize
from autellix.client.bench.replay import replay
from autellix.client.bench.targets import GatewayTarget, NatsTarget, OpenAITarget, Target
from autellix.client.cli.options import count
from autellix.client.errors import AutellixError
from autellix.schemas.traces.workloads import WORKLOADS

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

WIDTH = 120
"""Columns when the output is no terminal."""


class NoMatplotlibError(AutellixError):
    """A picture was asked for that cannot be drawn here."""

    def __init__(self) -> None:
        super().__init__("--png needs matplotlib, which is not installed: `pip install autellix[sim]` brings it")


def add(kinds: "Verbs") -> None:
    """Define the verb."""
    text = (
        "Run recorded agent programs against a server, as real programs with their call graphs and interrupts, and "
        "measure each program. Prompts are new text of the recorded lengths; answers are as long as recorded."
    )
    parser = kinds.add_parser("replay", help="one load against one server", description=text)
    _add_target(parser)
    _add_load(parser)
    parser.add_argument("--warm-up", type=_whole, default=4, metavar="N", help="programs run first, not measured")
    parser.add_argument("--name", help="what to call the system; else its URL")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every program's numbers")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the distribution of the latencies")
    parser.set_defaults(run=run)


def _add_target(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("server").add_mutually_exclusive_group(required=True)
    where.add_argument("--url", metavar="URL", help="any OpenAI-compatible server")
    where.add_argument("--gateway", metavar="URL", help="an Autellix, over HTTP")
    where.add_argument("--nats", metavar="URL", help="an Autellix, over NATS")
    parser.add_argument("--model", help="else the first that the server lists")
    parser.add_argument("--api-key", metavar="KEY", help="for HTTP; else OPENAI_API_KEY")
    parser.add_argument(
        "--priority", choices=("none", "calls"), default="none", help="with --url: send vLLM's priority field"
    )
    parser.add_argument(
        "--prompts", choices=("tokens", "text"), default="tokens", help="text: for servers that take no token ids"
    )


def _add_load(parser: argparse.ArgumentParser) -> None:
    load = parser.add_argument_group("load")
    load.add_argument("--workload", required=True, help=f"{', '.join(WORKLOADS)}, or the path of a .jsonl.gz trace")
    load.add_argument("--programs", type=count, default=100, metavar="N", help="how many (default: 100)")
    load.add_argument("--seed", type=_whole, default=1, metavar="N", help="which programs, when, and their texts")
    load.add_argument("--rate", type=_positive, metavar="X", help="programs that arrive a second, as a Poisson process")
    load.add_argument("--live", type=count, metavar="N", help="so many at a time; without it and --rate all at once")
    load.add_argument("--half", choices=("first", "second"), help="take only one half of the trace")
    load.add_argument("--max-calls", type=count, metavar="N", help="leave out programs of more calls")
    load.add_argument(
        "--max-context-tokens", type=count, metavar="N", help="leave out programs that grow longer, as replayed"
    )
    load.add_argument("--scale-prompts", type=_positive, default=1.0, metavar="X", help="divide prompts by it")
    load.add_argument("--scale-answers", type=_positive, default=1.0, metavar="X", help="divide answers by it")
    load.add_argument("--scale-interrupts", type=_seconds, default=1.0, metavar="X", help="multiply interrupts by it")
    load.add_argument(
        "--interrupt-cap", type=_seconds, default=30.0, metavar="S", help="longest interrupt (default: 30)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay, print the table, write the files; the status is 1 if no measured program finished."""
    if arguments.png and importlib.util.find_spec("matplotlib") is None:
        raise NoMatplotlibError
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    result = asyncio.run(_replayed(load_of(arguments), target_of(arguments), arguments.warm_up, console))
    result = replace(result, system=arguments.name or result.system)
    summary = summarize(result)
    console.print(report.table(result, summary), highlight=False)
    if arguments.json:
        report.write_json(result, summary, arguments.json)
    if arguments.png:
        from autellix.client.bench import curves  # needs matplotlib

        curves.draw([result], arguments.png)
    return 0 if summary.finished else 1


async def _replayed(load: Load, target: Target, warm_up: int, console: Console) -> Run:
    async with target:
        with report.progress(load.programs, console) as program_over:
            return await replay(load, target, on_program_over=program_over, warm_up=warm_up)


def load_of(arguments: argparse.Namespace) -> Load:
    """Return the load that the command line asks for."""
    return Load(
        workload=arguments.workload,
        programs=arguments.programs,
        seed=arguments.seed,
        rate_per_s=arguments.rate,
        live_programs=arguments.live,
        half=arguments.half,
        max_calls=arguments.max_calls,
        max_context_tokens=arguments.max_context_tokens,
        scale=Scale(
            prompts=arguments.scale_prompts,
            answers=arguments.scale_answers,
            interrupts=arguments.scale_interrupts,
            interrupt_cap_s=arguments.interrupt_cap,
        ),
    )


def target_of(arguments: argparse.Namespace) -> Target:
    """Return the server that the command line names."""
    if arguments.nats:
        return NatsTarget(arguments.nats, model=arguments.model, prompts=arguments.prompts)
    key = arguments.api_key or os.environ.get("OPENAI_API_KEY")
    if arguments.gateway:
        return GatewayTarget(arguments.gateway, model=arguments.model, api_key=key, prompts=arguments.prompts)
    return OpenAITarget(
        arguments.url, model=arguments.model, api_key=key, priority=arguments.priority, prompts=arguments.prompts
    )


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number from 0 up, not {text!r}")
    return int(text)


def _positive(text: str) -> float:
    value = _seconds(text)
    if not value:
        raise argparse.ArgumentTypeError("above 0, not 0")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"a number from 0 up, not {text!r}")
    return value
