"""`python -m autellix.services.session_manager`."""

import secrets

import msgspec

from autellix.services.bus import Bus
from autellix.services.command_line import from_command_line
from autellix.services.config import SessionManagerSettings
from autellix.services.runner import CoreRunner, run_process
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.listens import LISTENS


def carried(settings: SessionManagerSettings, max_payload: int) -> SessionManagerSettings:
    """Return the settings for a bus that carries `max_payload` bytes: half of it for a body, half for the hops."""
    return msgspec.structs.replace(settings, body_bytes_max=min(settings.body_bytes_max, max_payload // 2))


def main() -> None:
    """Run the session manager until told to stop."""
    settings = from_command_line("session-manager")
    secret = (settings.session_manager.secret or secrets.token_hex(32)).encode()[:64]

    def application(bus: Bus) -> CoreRunner:
        limits = carried(settings.session_manager, bus.max_payload)
        core = SessionManager(limits, new_id=lambda: secrets.token_hex(16), secret=secret)
        return CoreRunner(bus, core, LISTENS)

    run_process("session-manager", settings.nats.url, settings.log.level, application)


if __name__ == "__main__":
    main()
