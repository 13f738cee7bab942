"""`autellix submit`: one call from the command line."""

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec

from autellix.client.call import Patience, Stream, submitted
from autellix.client.cli.options import add_nats_url, count
from autellix.client.connection import shared, url_or_default
from autellix.client.queries import first_model
from autellix.schemas.requests import SubmitCall

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    parser = verbs.add_parser("submit", help="make one call", description="Make one chat call and print its answer.")
    parser.add_argument("prompt", metavar="PROMPT", help="the user's message")
    parser.add_argument("--model", help="else the first model of the first engine")
    parser.add_argument("--program", metavar="ID", help="a program that runs; else the call is one of its own")
    parser.add_argument(
        "--max-tokens", type=count, default=256, metavar="N", help="length of the answer (default: 256)"
    )
    text = "keep the call until it has one answer; the same prompt with the same id gets that, and so does `result`"
    parser.add_argument("--durable", metavar="ID", help=text)
    parser.add_argument("--no-stream", action="store_false", dest="stream", help="print the answer when it is complete")
    parser.add_argument("--json", action="store_true", help="print the whole OpenAI response, when it is complete")
    add_nats_url(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the answer, as it comes, or when it is complete."""
    if arguments.durable is not None:
        arguments.stream = False
    asyncio.run(_submit(arguments))
    return 0


async def _submit(arguments: argparse.Namespace) -> None:
    async with shared(url_or_default(arguments.nats_url)) as connection:
        body = {
            "model": arguments.model or await first_model(connection),
            "messages": [{"role": "user", "content": arguments.prompt}],
            "max_tokens": arguments.max_tokens,
            "stream": arguments.stream and not arguments.json,
        }
        call = SubmitCall(
            body=body, program_id=arguments.program, durable=arguments.durable is not None, id=arguments.durable
        )
        stream = Stream(submitted(connection, call, Patience()))
        async for piece in stream:
            print(piece, end="", flush=True)
    if arguments.json:
        print(msgspec.json.encode(stream.answer.response).decode())
    else:
        print("" if arguments.stream else stream.answer.text)
