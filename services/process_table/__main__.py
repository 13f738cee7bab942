"""`python -m autellix.services.process_table`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autellix.schemas import subjects
from autellix.services.command_line import from_command_line
from autellix.services.nats_bus import NatsBus
from autellix.services.process_table.core import ProcessTable
from autellix.services.process_table.listens import LISTENS
from autellix.services.runner import CoreRunner, run_process


def main() -> None:
    """Run the process table until told to stop."""
    settings = from_command_line("process-table")
    table = settings.process_table

    @asynccontextmanager
    async def application(bus: NatsBus) -> AsyncIterator[None]:
        await bus.keep(
            subjects.EVENT_STREAM,
            subjects.KEPT_EVENTS,
            max_bytes=table.events_max_bytes,
            max_age_s=table.events_max_age_s,
        )
        async with CoreRunner(bus, ProcessTable(table), LISTENS):
            yield

    run_process("process-table", settings.nats.url, settings.log.level, application)


if __name__ == "__main__":
    main()
