"""`autellix result`: what became of a durable call."""

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec

from autellix.client.cli.options import add_nats_url
from autellix.client.connection import shared, url_or_default
from autellix.client.errors import CallFailedError
from autellix.client.queries import get_result
from autellix.schemas.frames import CallResult, Failed, Finished

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

PENDING = 3
"""The exit status while there is no result yet."""


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = f"Print the answer to a durable call. Exit status {PENDING}: it has none yet."
    parser = verbs.add_parser("result", help="the answer to a durable call", description=text)
    parser.add_argument("id", metavar="ID", help="the id that it was submitted with")
    parser.add_argument("--json", action="store_true", help="print all that is known of it as JSON")
    add_nats_url(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the answer, or for how long it has been waited for."""
    found = asyncio.run(_asked(arguments))
    if arguments.json:
        print(msgspec.json.encode(found).decode())
    elif isinstance(found.result, Finished):
        print(_text(found.result))
    elif isinstance(found.result, Failed):
        raise CallFailedError(found.result)
    else:
        print(f"pending for {found.waited_ms / 1000:.1f} s")
    return 0 if found.result else PENDING


async def _asked(arguments: argparse.Namespace) -> CallResult:
    async with shared(url_or_default(arguments.nats_url)) as connection:
        return await get_result(connection, arguments.id)


def _text(end: Finished) -> str:
    """Return the text of a chat answer, and any other answer as JSON."""
    try:
        return str(end.response["choices"][0]["message"]["content"])
    except (KeyError, IndexError, TypeError):
        return msgspec.json.encode(end.response).decode()
