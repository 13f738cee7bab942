"""`python -m autellix.services.process_table`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autellix.services.command_line import from_command_line
from autellix.services.journal import Journal, remembering
from autellix.services.nats_bus import NatsBus
from autellix.services.process import run_process
from autellix.services.process_table.core import ProcessTable
from autellix.services.process_table.listens import LISTENS
from autellix.services.standby import Post, one_active

NAME = "process-table"


def main() -> None:
    """Run the process table until told to stop."""
    settings = from_command_line(NAME)

    @asynccontextmanager
    async def application(bus: NatsBus) -> AsyncIterator[None]:
        journal = Journal(bus, NAME, settings.process_table)
        await journal.open()

        @asynccontextmanager
        async def active(post: Post) -> AsyncIterator[None]:
            core = ProcessTable(settings.process_table)
            async with remembering(bus, journal, core, LISTENS, may_speak=post.may_speak):
                yield

        async with one_active(bus, journal.bucket, NAME, active):
            yield

    run_process(NAME, settings.nats, settings.log.level, application)


if __name__ == "__main__":
    main()
