"""What must hold in a stack that is quiet, whatever has died before: everybody is asked, and the answers compared."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from math import isclose
from typing import cast

from chaos_report import Report

from autellix.client.connection import Connection, shared
from autellix.client.queries import list_engines, list_programs
from autellix.schemas import subjects
from autellix.schemas.events import CallEvent
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import MetricsText
from autellix.schemas.requests import GetMetrics, ListPrograms
from autellix.schemas.table import ProgramList, ProgramRecord
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Reply
from autellix.services.missed import kept_after
from autellix.services.nats_bus import connect
from autellix.services.process_table.core import ProcessTable

SETTLE_S = 30.0
ALWAYS = 10**6
"""More programs than end in a run: none is forgotten."""


async def agree(programs: Mapping[ProgramId, int], nats_url: str, report: Report, *, after: str) -> None:
    """Ask everybody what happened, and note where they differ.

    Args:
        programs: How many calls of each were answered.
        nats_url: The bus.
        report: What was counted, and where to note.
        after: The fault.
    """
    wrong: list[str] = []
    async with shared(nats_url) as connection:
        rows, running = await settled(connection)
        wrong += await _in_flight(connection)
    wrong += [f"engines have {running} calls that nobody waits for"] * bool(running)
    wrong += _of_clients(programs, rows)
    wrong += _of_events(
        rows, await replayed(nats_url), {call_id for call_id, count in report.ends.items() if count > 1}
    )
    wrong += [f"the client of {call_id} got {count} answers" for call_id, count in report.frames.items() if count > 1]
    wrong += [f"{call_id} was answered {count} times" for call_id, count in report.answers.items() if count > 1]
    known = {text.partition(": ")[2] for text in report.wrong}
    report.wrong += [f"after {after}: {text}" for text in wrong if text not in known]


async def settled(connection: Connection) -> tuple[dict[ProgramId, ProgramRecord], int]:
    """Return the process table and the calls that engines have, once nothing runs any more."""
    until = time.monotonic() + SETTLE_S
    while True:
        rows = (await list_programs(connection)).programs
        running = sum(engine.calls for engine in (await list_engines(connection)).engines)
        if time.monotonic() > until or not (running or any(row.live_calls for row in rows)):
            return {row.program_id: row for row in rows}, running
        await asyncio.sleep(0.5)


async def _in_flight(connection: Connection) -> list[str]:
    """Return what the metrics take for live, though nothing is."""
    text = (await connection.request(subjects.METRICS_GET, GetMetrics(), MetricsText)).text
    live = [line for line in text.splitlines() if line.startswith("autellix_calls_in_flight")]
    return [f"the metrics say {line}" for line in live if float(line.split()[-1])]


def _of_clients(programs: Mapping[ProgramId, int], rows: Mapping[ProgramId, ProgramRecord]) -> list[str]:
    """Return the programs that are unknown, have a call for ever, or fewer calls than were answered."""
    wrong = []
    for program_id, answered in programs.items():
        row = rows.get(program_id)
        if row is None:
            wrong.append(f"program {program_id} is not known")
        elif row.calls < answered:
            wrong.append(f"program {program_id}: {answered} calls answered, {row.calls} counted")
        elif row.live_calls:
            wrong.append(f"program {program_id}: {row.live_calls} calls are live for ever")
    return wrong


async def replayed(nats_url: str) -> dict[ProgramId, tuple[ProgramRecord, set[str]]]:
    """Return what a process table says that hears all events that are kept, and the calls of each program."""
    bus = await connect(nats_url, name="chaos")
    table, calls = ProcessTable(ProcessTableSettings(ended_kept=ALWAYS)), defaultdict[ProgramId, set[str]](set)
    async for event in kept_after(bus, 0):
        table.recover(event, 0.0)
        if isinstance(event, CallEvent):
            calls[event.program_id].add(event.call_id)
    await bus.close()
    (out,) = table.handle(ListPrograms(), 0.0, Reply("nowhere"))
    programs = cast("ProgramList", out.message).programs
    return {row.program_id: (row, calls[row.program_id]) for row in programs}


def _of_events(
    rows: Mapping[ProgramId, ProgramRecord],
    replay: Mapping[ProgramId, tuple[ProgramRecord, set[str]]],
    twice: set[str],
) -> list[str]:
    """Return where the process table differs from a replay of the events.

    Of calls whose end was announced twice either may be the one that counts, so their programs are passed over.
    """
    wrong = [f"program {name} is in no event" for name in rows.keys() - replay.keys()]
    wrong += [f"program {name} is in the events only" for name in replay.keys() - rows.keys()]
    for name, (told, calls) in replay.items():
        row = rows.get(name)
        if row and calls.isdisjoint(twice) and not _same(row, told):
            wrong.append(f"program {name} is {_brief(row)}, by the events {_brief(told)}")
    return wrong


def _same(row: ProgramRecord, told: ProgramRecord) -> bool:
    return (row.state, row.calls, row.live_calls) == (told.state, told.calls, told.live_calls) and all(
        isclose(getattr(row, name), getattr(told, name), abs_tol=1e-3)
        for name in ("service_ms", "waiting_ms", "critical_path_ms")
    )


def _brief(row: ProgramRecord) -> str:
    return f"{row.state} with {row.calls} calls and {row.live_calls} live, {row.service_ms:.1f} ms"
