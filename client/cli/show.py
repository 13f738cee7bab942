"""`autellix show` and `autellix end`: one program."""

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from autellix.client.cli.options import add_nats_url
from autellix.client.connection import shared, url_or_default
from autellix.client.queries import end_program, get_program
from autellix.client.tables import program_details

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


def add(verbs: "Verbs") -> None:
    """Define the verbs."""
    named = "its id or the beginning of it, its name or its label"
    show = verbs.add_parser("show", help="show one program", description="Show what is known of a program.")
    show.add_argument("program", metavar="PROGRAM", help=named)
    show.add_argument("--json", action="store_true", help="print its record as JSON")
    show.set_defaults(run=run)
    text = "End a program and cancel what it still runs; to end one that is over, or never was, is no error."
    end = verbs.add_parser("end", help="end a program", description=text)
    end.add_argument("program", metavar="PROGRAM", help=named)
    end.add_argument("--json", action="store_true", help="print the answer as JSON")
    end.set_defaults(run=run_end)
    for parser in (show, end):
        add_nats_url(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the program."""

    async def asked() -> None:
        async with shared(url_or_default(arguments.nats_url)) as connection:
            program = await get_program(connection, arguments.program)
        if arguments.json:
            print(msgspec.json.encode(program).decode())
        else:
            Console().print(program_details(program))

    asyncio.run(asked())
    return 0


def run_end(arguments: argparse.Namespace) -> int:
    """End the program."""

    async def asked() -> None:
        async with shared(url_or_default(arguments.nats_url)) as connection:
            ended = await end_program(connection, arguments.program)
        print(msgspec.json.encode(ended).decode() if arguments.json else f"ended {arguments.program}")

    asyncio.run(asked())
    return 0
