"""`autellix ps`: the process table."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from rich.console import Console

from autellix.client.cli.options import add_nats_url
from autellix.client.connection import shared, url_or_default
from autellix.client.queries import list_engines, list_programs
from autellix.client.tables import engines_table, programs_table
from autellix.schemas.table import EngineList, ProgramList, ProgramRecord

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

WIDTH = 120
"""Columns when the output is no terminal."""
ENDED_SHOWN = 20
"""Programs that have ended are kept for long; the last ones are those that are looked for."""


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = (
        f"Show the programs that run and the last {ENDED_SHOWN} that ended: their calls, and where their time went; "
        "and the engines."
    )
    parser = verbs.add_parser("ps", help="show programs and engines", description=text)
    parser.add_argument("--all", action="store_true", help="show every program that has ended")
    parser.add_argument("--json", action="store_true", help="print all records as JSON")
    add_nats_url(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    programs, engines = asyncio.run(_listed(url_or_default(arguments.nats_url)))
    if arguments.json:
        text = msgspec.json.encode({"programs": programs.programs, "engines": engines.engines, "at_ms": programs.at_ms})
        print(text.decode())
        return 0
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    shown = programs if arguments.all else replace(programs, programs=recent(programs.programs))
    console.print(programs_table(shown))
    if hidden := len(programs.programs) - len(shown.programs):
        console.print(f"{hidden} more ended before; --all shows them.")
    console.print("", engines_table(engines))
    return 0


def recent(programs: Sequence[ProgramRecord]) -> list[ProgramRecord]:
    """Return the programs that run and the last `ENDED_SHOWN` that ended, in the order given."""
    ended = sorted((program.ended_at_ms, program.program_id) for program in programs if program.ended_at_ms is not None)
    hidden = {program_id for _, program_id in ended[:-ENDED_SHOWN]}
    return [program for program in programs if program.program_id not in hidden]


async def _listed(nats_url: str) -> tuple[ProgramList, EngineList]:
    async with shared(nats_url) as connection:
        return await list_programs(connection), await list_engines(connection)
