"""What must hold in a service after everything that it hears, whatever was lost, late or came twice."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from autellix.schemas import tenants
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.process_table.core import ProcessTable
from autellix.services.session_manager.core import SessionManager


def broken_in(core: Any) -> Iterator[str]:
    """Return what does not hold."""
    match core:
        case SessionManager():
            yield from _manager(core)
        case ProcessTable():
            yield from _table(core)
        case LoadBalancer():
            yield from _balancer(core)


def _manager(core: SessionManager) -> Iterator[str]:
    """Each live call has one program, and tenants are charged for what is live, no more and no less."""
    sessions = core._sessions  # noqa: SLF001 - the check is of what is inside, here and below
    live = {each.program_id: each.live for each in sessions._sessions.values()}  # noqa: SLF001
    owners = {call_id: program_id for program_id, calls in live.items() for call_id in calls}
    if sessions._owners != owners:  # noqa: SLF001
        yield f"the session manager takes {sessions._owners} for the live calls of {owners}"  # noqa: SLF001
    calls_of = Counter[str]()
    for program_id, calls in live.items():
        calls_of[tenants.tenant_of(program_id)] += len(calls)
    if +sessions.calls_of != +calls_of:
        yield f"the session manager counts {dict(sessions.calls_of)} live calls, of {dict(calls_of)}"


def _table(core: ProcessTable) -> Iterator[str]:
    """A call is live or it has ended; nothing is counted below zero, and no path is longer than all the service.

    The path of a named session may be: it may begin anew before the end of its last life is heard, on another subject,
    which takes delays that a NATS server does not have.
    """
    for program_id, row in core._rows.items():  # noqa: SLF001
        record = row.record
        if record.live_calls != len(row.live):
            yield f"{program_id} has {record.live_calls} live calls, which are {list(row.live)}"
        if both := row.live.keys() & core._ended_calls.keys():  # noqa: SLF001
            yield f"{program_id} has live calls that ended: {sorted(both)}"
        if not (row.is_named or 0 <= record.critical_path_ms <= record.service_ms + 1e-6):
            yield f"{program_id} has a critical path of {record.critical_path_ms} in {record.service_ms} ms"


def _balancer(core: LoadBalancer) -> Iterator[str]:
    """A call is on one engine, that is in rotation, and has not ended."""
    on = Counter(call_id for engine in core._engines.values() for call_id in engine.calls)  # noqa: SLF001
    if on != Counter(core._engine_of.keys()):  # noqa: SLF001
        yield f"the balancer takes {dict(on)} for the calls {sorted(core._engine_of)}"  # noqa: SLF001
    for call_id, engine_id in core._engine_of.items():  # noqa: SLF001
        engine = core._engines.get(engine_id)  # noqa: SLF001
        if engine is None or call_id not in engine.calls:
            yield f"{call_id} is on {engine_id}, which is not so"
        if call_id in core._ended:  # noqa: SLF001
            yield f"{call_id} has ended and is on {engine_id}"
