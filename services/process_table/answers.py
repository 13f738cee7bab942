"""What the process table answers to who asks; a tenant is told of its own programs only."""

from collections.abc import Iterable

import msgspec

from autellix.schemas import tenants
from autellix.schemas.base import ErrorBody
from autellix.schemas.identity import BEGUN
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import Failed, GetProgram, ListPrograms, ProgramList, ProgramRecord
from autellix.services.process_table.rows import Row

Rows = dict[ProgramId, Row]


def listed(rows: Rows, ended: Iterable[ProgramId], request: ListPrograms, tenant: str, now_ms: float) -> ProgramList:
    """Return the programs that `tenant` asks for, oldest first.

    Args:
        rows: All programs, in the order in which they were first heard of.
        ended: Those that are over, in the order of their ends.
        request: Which of them.
        tenant: Who asks.
        now_ms: Wall-clock milliseconds.
    """
    mine = [program_id for program_id in rows if tenants.may(tenant, program_id)]
    over = [program_id for program_id in ended if request.include_ended and tenants.may(tenant, program_id)]
    running = [program_id for program_id in mine if rows[program_id].record.state == "running"]
    shown = {*_last(over, request.ended_max), *_last(running, request.running_max)}
    records = [rows[program_id].settle(now_ms) for program_id in mine if program_id in shown]
    if not request.with_threads:
        records = [msgspec.structs.replace(record, threads={}) for record in records]
    return ProgramList(programs=records, at_ms=now_ms)


def found(rows: Rows, request: GetProgram, tenant: str, now_ms: float) -> ProgramRecord | Failed:
    """Return the program that `tenant` asks for; one of another's is none."""
    row = rows.get(request.program_id)
    if row is None or not tenants.may(tenant, request.program_id):
        row = _last_named(rows, request.program_id, tenant)
    if row:
        return row.settle(now_ms)
    error = ErrorBody(message="No such program.", type="not_found_error", code="program_not_found")
    return Failed(status=404, error=error)


def _last_named(rows: Rows, name: str, tenant: str) -> Row | None:
    """Return the program that began last with its client's name for it; a label is no name."""
    for program_id in reversed(rows):
        record = rows[program_id].record
        if record.source != BEGUN and name and record.name == name and tenants.may(tenant, program_id):
            return rows[program_id]
    return None


def _last(programs: list[ProgramId], count: int | None) -> list[ProgramId]:
    return programs if count is None else programs[max(0, len(programs) - count) :]
