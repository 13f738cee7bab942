"""`python -m autellix.services.session_manager`."""

import secrets

import msgspec

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_ENDS, CALL_EVENTS, Decoder
from autellix.schemas.messages import CancelCalls, EndSession, StartSession, SubmitCall, TouchSession
from autellix.services.bus import Bus
from autellix.services.command_line import from_command_line
from autellix.services.config import SessionManagerSettings
from autellix.services.runner import CoreRunner, Listen, run_process
from autellix.services.session_manager.core import SessionManager

GROUP = "session-manager"

LISTENS = (
    *(Listen(subject, CALL_ENDS) for subject in subjects.CALL_ENDS),
    Listen(subjects.CALL_ROUTED_EVENT, CALL_EVENTS),
    Listen(subjects.SESSIONS_START, Decoder(StartSession), GROUP, answered=True),
    Listen(subjects.SESSIONS_TOUCH, Decoder(TouchSession), GROUP, answered=True),
    Listen(subjects.SESSIONS_END, Decoder(EndSession), GROUP, answered=True),
    Listen(subjects.CALLS_SUBMIT, Decoder(SubmitCall), GROUP, answered=True),
    Listen(subjects.CALLS_CANCEL, Decoder(CancelCalls), GROUP, answered=True),
)


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
