"""`autellix doctor`: what is wrong with an installation."""

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autellix.client.cli.options import add_gateway_url, add_nats_url, gateway_url
from autellix.client.connection import url_or_default
from autellix.client.doctor import Finding, findings

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

MARKS = {"good": ("✓", "green"), "note": ("•", "yellow"), "bad": ("✗", "red")}


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = "Ask every part whether it is there and does its work, and say what to do. Status 1: something is wrong."
    parser = verbs.add_parser("doctor", help="find out what is wrong", description=text)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    add_nats_url(parser)
    add_gateway_url(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what is found."""
    found = asyncio.run(_found(url_or_default(arguments.nats_url), gateway_url(arguments.url)))
    if arguments.json:
        print(msgspec.json.encode([finding._asdict() for finding in found]).decode())
    else:
        table = Table.grid(padding=(0, 1))
        for finding in found:
            mark, style = MARKS[finding.state]
            text = f"{finding.text}\n{finding.hint}" if finding.hint else finding.text
            table.add_row(Text(mark, style), finding.about, Text(text))
        Console().print(table)
    return int(any(finding.state == "bad" for finding in found))


async def _found(nats_url: str, url: str) -> list[Finding]:
    return [finding async for finding in findings(nats_url, url)]
