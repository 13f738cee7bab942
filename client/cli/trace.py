"""`autellix trace`: what a program's calls did when, for Chrome or Perfetto, and as a picture."""

import argparse
import asyncio
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from autellix.client.cli.bench_replay import NoMatplotlibError
from autellix.client.cli.options import add_nats_url
from autellix.client.connection import shared, url_or_default
from autellix.client.errors import AutellixError
from autellix.client.gantt import draw, trace_events
from autellix.client.history import events_of
from autellix.client.queries import get_program
from autellix.client.timeline import Timeline
from autellix.schemas.messages import CallEvent
from autellix.schemas.table import ProgramRecord

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = (
        "Write what the calls of a program did when: waiting, held for room, executing, preempted; and when it had "
        "none. The file is for chrome://tracing and ui.perfetto.dev."
    )
    parser = verbs.add_parser("trace", help="write a program's Gantt chart", description=text)
    parser.add_argument("program", metavar="PROGRAM", help="its id or the beginning of it, its name or its label")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the trace (default: PROGRAM.json); -: print it")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw it, too")
    parser.add_argument("--json", action="store_true", help="say as JSON which program it is and what was written")
    add_nats_url(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the files and say where they are."""
    if arguments.png and not find_spec("matplotlib"):
        raise NoMatplotlibError
    written: list[Path] = []
    program, timeline = asyncio.run(_known(arguments.program, url_or_default(arguments.nats_url)))
    trace = {"traceEvents": trace_events(timeline, program.program_id, program.name), "displayTimeUnit": "ms"}
    text = msgspec.json.encode(trace)
    printed = str(arguments.out) == "-"
    if printed:
        print(text.decode())
    else:
        file = arguments.out or Path(f"{program.program_id}.json")
        file.write_bytes(text)
        written.append(file)
    if arguments.png:
        title = f"{program.name or program.program_id}: {program.calls} calls"
        draw(timeline, program.program_id, title, arguments.png)
        written.append(arguments.png)
    if arguments.json and not printed:
        print(msgspec.json.encode({"program_id": program.program_id, "files": list(map(str, written))}).decode())
    else:
        print(*written, sep="\n", end="\n" if written else "")
    return 0


async def _known(name: str, nats_url: str) -> tuple[ProgramRecord, Timeline]:
    async with shared(nats_url) as connection:
        program = await get_program(connection, name)
        events = await events_of(connection, program.program_id, program.started_at_ms)
    timeline = Timeline()
    timeline.now_ms = time.time() * 1000 if program.live_calls else None
    for event in events:
        if isinstance(event, CallEvent):
            timeline.add(event)
    if not timeline.threads(program.program_id):
        raise AutellixError(f"no call of {name} is known any more")
    return program, timeline
