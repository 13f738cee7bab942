"""`python -m autellix.client.demo`: four agents at the same time on one small model, and where their time went."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import nats
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autellix.client.cli import INTERRUPTED
from autellix.client.cli.options import add_settings
from autellix.client.connection import shared
from autellix.client.errors import AutellixError
from autellix.client.examples import chat, map_reduce, react, tree_search
from autellix.client.plan import Plan
from autellix.client.progress import started
from autellix.client.queries import list_engines, list_programs
from autellix.client.stack import Stack
from autellix.client.tables import engines_table, interrupted_ms, life_ms, programs_table
from autellix.client.timeline import LEGEND, Timeline
from autellix.schemas import subjects
from autellix.schemas.codec import CALL_EVENTS
from autellix.schemas.table import ProgramList, ProgramRecord

MODEL = "smollm2-135m-instruct"
SLOTS = 4  # fewer than the calls these programs make at the same time, so that the schedule matters
MARGIN = 12  # columns for the name in front of each line
WIDTH = 120  # columns when the output is no terminal

Run = Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]

PROGRAMS: dict[str, tuple[Run, str]] = {
    "chat": (chat.run, "cyan"),
    "react": (react.run, "magenta"),
    "map-reduce": (map_reduce.run, "green"),
    "tree-search": (tree_search.run, "yellow"),
}
"""What runs, under the name that it gives itself, and its colour."""


def main() -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m autellix.client.demo", description=__doc__)
    add_settings(parser)
    arguments = parser.parse_args()
    overrides = (f"engine_worker.slots={SLOTS}", *arguments.overrides)
    stack = Stack(Plan(model=MODEL, port=0, config=arguments.config, overrides=overrides))
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    begin = time.monotonic()
    try:
        asyncio.run(_demo(stack, console))
    except AutellixError as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    console.print(f"Everything has stopped. The demo took {time.monotonic() - begin:.0f} s.")
    return 0


async def _demo(stack: Stack, console: Console) -> None:
    console.print(f"Starting an engine with {MODEL}.")
    console.print(f"The logs are in {stack.log_dir}", soft_wrap=True)
    async with started(stack, console):
        console.print(
            f"Meanwhile, in another shell: .venv/bin/autellix ps --nats-url {stack.nats_url}\n", soft_wrap=True
        )
        os.environ.update(AUTELLIX_NATS_URL=stack.nats_url, AUTELLIX_MODEL=MODEL)
        async with _heard(stack.nats_url) as timeline:
            await stack.guard(_all_at_once(console))
        async with shared(stack.nats_url) as connection:
            programs, engines = await list_programs(connection), await list_engines(connection)
        console.print("", programs_table(programs), "", engines_table(engines))
        _explain(console, programs, timeline)


@asynccontextmanager
async def _heard(nats_url: str) -> AsyncIterator[Timeline]:
    """Gather the events of all calls, as any outsider can."""
    timeline = Timeline()

    async def on_event(msg: Any) -> None:
        timeline.add(CALL_EVENTS.decode(msg.data))

    client = await nats.connect(nats_url)
    await client.subscribe(subjects.CALL_EVENTS, cb=on_event)
    await client.flush()
    yield timeline
    await client.drain()


async def _all_at_once(console: Console) -> None:
    """Run the programs, each saying what it does under its own name and colour."""

    def said_by(name: str, colour: str) -> Callable[[str], None]:
        def say(text: str) -> None:
            line = Table.grid(padding=(0, 1))
            line.add_column(width=MARGIN, justify="right", style=colour)
            line.add_row(name, Text(text))
            console.print(line)

        return say

    try:
        async with asyncio.TaskGroup() as running:
            for name, (run, colour) in PROGRAMS.items():
                running.create_task(run(said_by(name, colour)))
    except ExceptionGroup as failures:  # one is enough to say what is wrong
        raise failures.exceptions[0] from failures


def _explain(console: Console, programs: ProgramList, timeline: Timeline) -> None:
    """Show for each program where its time went, and when."""
    width = console.width - MARGIN - 1
    console.print(f"\nA row is a thread, and one character {timeline.column_s(width):.2f} s. A call")
    console.print(LEGEND, soft_wrap=True)
    for program in programs.programs:
        colour = PROGRAMS[program.name][1]
        console.print(Text(f"\n{_account(program, programs.at_ms)}", style=f"bold {colour}"))
        for thread_id, row in timeline.rows(program.program_id, width):
            console.print(Text(f"{thread_id:>{MARGIN}} {row}", style=colour), overflow="crop", no_wrap=True)


def _account(program: ProgramRecord, now_ms: float) -> str:
    """Return where a program's time went; its calls' times add up over its threads."""
    life, interrupted = life_ms(program, now_ms) / 1000, interrupted_ms(program, now_ms) / 1000
    waiting, service = program.waiting_ms / 1000, program.service_ms / 1000
    return (
        f"{program.name}: lived {life:.1f} s, of them {interrupted:.1f} s without a call; "
        f"its {program.calls} calls waited {waiting:.1f} s (displaced time included), were executed {service:.1f} s, "
        f"displaced {program.preemptions} times"
    )


if __name__ == "__main__":
    sys.exit(main())
