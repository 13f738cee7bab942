"""`autellix drain` and `autellix resume`: take an engine out of rotation and back, by hand."""

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec

from autellix.client.cli.options import add_nats_url, seconds
from autellix.client.connection import shared, url_or_default
from autellix.client.queries import control_engine, list_engines
from autellix.schemas.events import EngineLoad
from autellix.schemas.ids import EngineId

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

STILL_BUSY = 3
"""The exit status when calls still run after the time that was waited."""
POLL_S = 0.2


def add(verbs: "Verbs") -> None:
    """Define both verbs."""
    text = f"Let an engine finish its calls and take no new ones. Exit status {STILL_BUSY}: some still run."
    drain = verbs.add_parser("drain", help="let an engine finish its calls and take no new ones", description=text)
    drain.add_argument("--wait", type=seconds, metavar="SECONDS", help="until it has finished, at most so long")
    resume = verbs.add_parser("resume", help="let a drained engine take calls again")
    for parser in (drain, resume):
        parser.add_argument("engine", metavar="ENGINE", help="its id, as `autellix ps` shows it")
        parser.add_argument("--json", action="store_true", help="print what it says of itself as JSON")
        add_nats_url(parser)
    drain.set_defaults(run=run, action="drain")
    resume.set_defaults(run=run, action="resume", wait=None)


def run(arguments: argparse.Namespace) -> int:
    """Give the order, and say how the engine is then."""
    load = asyncio.run(_ordered(arguments))
    said = f"{load.engine_id} {load.state}, {load.calls} calls"
    print(msgspec.json.encode(load).decode() if arguments.json else said)
    return STILL_BUSY if arguments.wait and load.calls else 0


async def _ordered(arguments: argparse.Namespace) -> EngineLoad:
    engine_id = EngineId(arguments.engine)
    async with shared(url_or_default(arguments.nats_url)) as connection:
        load = await control_engine(connection, engine_id, arguments.action)
        until_s = asyncio.get_running_loop().time() + (arguments.wait or 0)
        while load.calls and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(POLL_S)
            known = {each.engine_id: each for each in (await list_engines(connection)).engines}
            load = known.get(engine_id, load)
    return load
