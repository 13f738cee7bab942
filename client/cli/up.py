"""`autellix up`: everything on this machine, in the foreground."""

import argparse
import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from autellix.client.cli.options import add_settings, count
from autellix.client.connection import DEFAULT_PORT
from autellix.client.plan import POLICIES, Plan
from autellix.client.progress import started
from autellix.client.stack import Stack, is_free

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = "Run a NATS server, every service and the engines in the foreground, until Ctrl-C."
    parser = verbs.add_parser("up", help="run everything on this machine", description=text)
    parser.add_argument("--model", help="the model that the engines serve")
    parser.add_argument("--engines", type=count, default=1, metavar="N", help="how many engines (default: 1)")
    parser.add_argument("--policy", choices=POLICIES, help="the engines' scheduling policy")
    parser.add_argument("--port", type=int, default=8000, help="of the HTTP gateway (default: 8000; 0: any free one)")
    parser.add_argument("--nats-url", metavar="URL", help="use this NATS server instead of starting one")
    parser.add_argument("--log-dir", type=Path, metavar="DIR", help="where the logs go (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="when it is ready, say where as a line of JSON")
    add_settings(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the stack until a signal; the exit status is 0 when it was asked to stop."""
    plan = Plan(
        model=arguments.model,
        policy=arguments.policy,
        engines=arguments.engines,
        port=arguments.port,
        nats_url=arguments.nats_url,
        nats_port=DEFAULT_PORT if is_free(DEFAULT_PORT) else 0,  # where programs look that are told nothing
        config=arguments.config,
        overrides=tuple(arguments.overrides),
        log_dir=arguments.log_dir,
    )
    asyncio.run(_up(Stack(plan), as_json=arguments.json))
    return 0


async def _up(stack: Stack, *, as_json: bool) -> None:
    people = Console(stderr=as_json, highlight=False, soft_wrap=True)
    people.print(f"The logs are in {stack.log_dir}", markup=False)
    _cancel_on_signal(asyncio.current_task(), people)
    try:
        async with started(stack, people):
            print(msgspec.json.encode(_where(stack)).decode() if as_json else _how_to_connect(stack), flush=True)
            await stack.guard(asyncio.Event().wait())
    except asyncio.CancelledError:
        people.print("Stopped.")


def _cancel_on_signal(task: "asyncio.Task[None] | None", people: Console) -> None:
    """Cancel `task` at the first signal to stop; later ones are ignored, since stopping has its own bound."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for name in STOP_SIGNALS:
            loop.add_signal_handler(name, lambda: None)
        people.print("Stopping ...")
        if task:
            task.cancel()

    for name in STOP_SIGNALS:
        loop.add_signal_handler(name, stop)


def _where(stack: Stack) -> dict[str, str]:
    return {
        "http": f"{stack.http_url}/v1",
        "page": f"{stack.http_url}/",
        "nats": stack.nats_url,
        "logs": str(stack.log_dir),
    }


def _how_to_connect(stack: Stack) -> str:
    return f"""
HTTP  {stack.http_url}/v1
page  {stack.http_url}/
NATS  {stack.nats_url}

export AUTELLIX_NATS_URL={stack.nats_url}
export OPENAI_BASE_URL={stack.http_url}/v1
export OPENAI_API_KEY=unused

Ready; Ctrl-C stops everything."""
