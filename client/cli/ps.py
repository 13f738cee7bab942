"""`autellix ps`: the process table."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from autellix.client.cli.options import add_nats_url
from autellix.client.connection import shared, url_or_default
from autellix.client.queries import list_engines, list_programs
from autellix.client.tables import engines_table, programs_table
from autellix.schemas.table import EngineList, ProgramList

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

WIDTH = 120
"""Columns when the output is no terminal."""


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = "Show every program: its calls, and where its time went; and the engines."
    parser = verbs.add_parser("ps", help="show programs and engines", description=text)
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
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
    console.print(programs_table(programs), engines_table(engines))
    return 0


async def _listed(nats_url: str) -> tuple[ProgramList, EngineList]:
    async with shared(nats_url) as connection:
        return await list_programs(connection), await list_engines(connection)
