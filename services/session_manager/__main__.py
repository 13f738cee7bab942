"""`python -m autellix.services.session_manager`."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from autellix.services.command_line import from_command_line
from autellix.services.config import SessionManagerSettings
from autellix.services.journal import Journal, remembering
from autellix.services.nats_bus import NatsBus
from autellix.services.process import run_process
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.listens import LISTENS
from autellix.services.standby import Post, one_active

NAME = "session-manager"


def carried(settings: SessionManagerSettings, max_payload: int) -> SessionManagerSettings:
    """Return the settings for a bus that carries `max_payload` bytes: half of it for a body, half for the hops."""
    return msgspec.structs.replace(settings, body_bytes_max=min(settings.body_bytes_max, max_payload // 2))


def main() -> None:
    """Run the session manager until told to stop."""
    settings = from_command_line(NAME)

    @asynccontextmanager
    async def application(bus: NatsBus) -> AsyncIterator[None]:
        journal = Journal(bus, NAME, settings.process_table)
        await journal.open()

        @asynccontextmanager
        async def active(post: Post) -> AsyncIterator[None]:
            secret = settings.session_manager.secret or await journal.secret(secrets.token_hex(32))
            limits = carried(settings.session_manager, bus.max_payload)
            core = SessionManager(limits, new_id=lambda: secrets.token_hex(16), secret=secret.encode()[:64])
            async with remembering(bus, journal, core, LISTENS, may_speak=post.may_speak):
                yield

        async with one_active(bus, journal.bucket, NAME, active):
            yield

    run_process(NAME, settings.nats, settings.log.level, application)


if __name__ == "__main__":
    main()
