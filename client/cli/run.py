"""`autellix run`: a script or command inside a program, unchanged.

It is told a URL that names the program, by the variables that the clients of OpenAI and Anthropic read. So it works for
any language and framework that lets its base URL be set that way.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from autellix.client.cli.options import add_gateway_url, add_nats_url, gateway_url
from autellix.client.connection import shared, url_or_default
from autellix.client.errors import AutellixError
from autellix.client.program import Program
from autellix.client.queries import get_program

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


RECORD_S = 2.0
RECORD_TRIES = 40
"""How long, and in how many tries, the end of a program may take to be known."""


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = "Run a script, or any command, as one program: it is begun, all its calls belong to it, and it is ended."
    parser = verbs.add_parser("run", help="run a script as a program", description=text)
    add_gateway_url(parser)
    parser.add_argument("--name", help="a label for people; else the script's name")
    parser.add_argument("--agent", default="", metavar="KIND", help="what kind of agent it is")
    parser.add_argument("--json", action="store_true", help="print the program's record on stderr when it is over")
    add_nats_url(parser)
    parser.add_argument("command", metavar="SCRIPT", help="a Python script, or a command")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    command = [arguments.command, *arguments.arguments]
    if arguments.command.endswith(".py"):
        command = [sys.executable, *command]
    program = Program(
        arguments.name or Path(arguments.command).name, agent=arguments.agent, nats_url=arguments.nats_url
    )
    status = asyncio.run(_run(command, gateway_url(arguments.url), program))
    if arguments.json:
        print(asyncio.run(_record(program.id, url_or_default(arguments.nats_url))), file=sys.stderr)
    return status


def environment(url: str, program_id: str, model: str) -> dict[str, str]:
    """Return what a program's process is told: where its calls go, and what to say where a key must be said.

    Args:
        url: The gateway's.
        program_id: The program.
        model: What its calls may ask for.
    """
    base = f"{url}/programs/{program_id}"
    keys = {name: os.environ.get(name) or "none" for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")}
    own = {"AUTELLIX_URL": url, "AUTELLIX_PROGRAM_ID": program_id, "AUTELLIX_MODEL": model}
    return {**keys, **own, "OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_BASE": f"{base}/v1", "ANTHROPIC_BASE_URL": base}


async def _run(command: list[str], url: str, program: Program) -> int:
    async with program:
        told = environment(url, program.id, program.model)
        try:
            process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **told})
        except OSError as error:
            raise AutellixError(f"cannot run {command[0]}: {error.strerror}") from error
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):  # Ctrl-C reaches the command by itself: both wait for its end
            loop.add_signal_handler(name, _pass_on, process, name)
        status = await process.wait()
    return status if status >= 0 else 128 - status


async def _record(program_id: str, nats_url: str) -> str:
    """Return a program's record once the table knows that it is over: its end is an event, as are those of calls."""
    try:
        async with shared(nats_url) as connection:
            for _ in range(RECORD_TRIES):
                record = await get_program(connection, program_id)
                if record.ended_at_ms is not None and not record.live_calls:
                    break
                await asyncio.sleep(RECORD_S / RECORD_TRIES)
    except AutellixError as error:  # the command itself has done what it did
        return f"autellix: no record: {error}"
    return msgspec.json.encode(record).decode()


def _pass_on(process: asyncio.subprocess.Process, name: signal.Signals) -> None:
    if name == signal.SIGTERM and process.returncode is None:
        process.terminate()
