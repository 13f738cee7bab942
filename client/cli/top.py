"""`autellix top`: the programs that run, live."""

import argparse
import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console, Group
from rich.live import Live

from autellix.client.cli.options import add_nats_url, count, seconds
from autellix.client.connection import Connection, shared, url_or_default
from autellix.client.queries import list_engines, list_programs
from autellix.client.tables import engines_table, running_table
from autellix.client.tokens import TokenRates
from autellix.schemas.table import EngineList, ProgramList

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = "Show the programs that run, who has attained the least first, and the engines; until Ctrl-C."
    parser = verbs.add_parser("top", help="watch programs and engines", description=text)
    parser.add_argument("--every", type=seconds, default=1.0, metavar="SECONDS", help="how often (default: 1)")
    parser.add_argument("--times", type=count, metavar="N", help="end after so many times")
    parser.add_argument("--json", action="store_true", help="print a line of JSON each time")
    add_nats_url(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show until told to stop."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(arguments))
    return 0


async def _watch(arguments: argparse.Namespace) -> None:
    console, rates, done = Console(), TokenRates(), 0
    async with shared(url_or_default(arguments.nats_url)) as connection:
        with Live(console=console, auto_refresh=False, screen=console.is_terminal and not arguments.json) as live:
            while arguments.times is None or done < arguments.times:
                if done:
                    await asyncio.sleep(arguments.every)
                programs, engines = await _listed(connection)
                rates.add(programs)
                if arguments.json:
                    console.print(_line(programs, engines, rates), soft_wrap=True, markup=False, highlight=False)
                else:
                    live.update(Group(running_table(programs, rates), "", engines_table(engines)), refresh=True)
                done += 1


async def _listed(connection: Connection) -> tuple[ProgramList, EngineList]:
    return await list_programs(connection, include_ended=False), await list_engines(connection)


def _line(programs: ProgramList, engines: EngineList, rates: TokenRates) -> str:
    rated = {program.program_id: rates.of(program.program_id) for program in programs.programs}
    known = {"at_ms": programs.at_ms, "programs": programs.programs, "engines": engines.engines}
    return msgspec.json.encode({**known, "tokens_per_s": rated}).decode()
