"""How much may be live at once: of one program, of one tenant, of all."""

from autellix.schemas import tenants
from autellix.schemas.openai import invalid
from autellix.services.config import SessionManagerSettings
from autellix.services.session_manager.sessions import Session, Sessions


def check_room_for_program(sessions: Sessions, tenant: str, settings: SessionManagerSettings) -> None:
    """Check that another program of a tenant may begin.

    Raises:
        InvalidRequestError: 429 if the tenant has too many, 503 if there are too many.
    """
    if len(sessions) >= settings.programs_max:
        raise invalid("Too many live programs; try again later.", code="too_many_programs", status=503)
    mine = sessions.programs_of[tenant]
    if tenant and mine >= settings.tenant_programs_max:
        limit = f"The tenant has {mine} live programs, its limit."
        raise invalid(limit, code="too_many_programs_of_tenant", status=429)


def check_room_for_call(
    sessions: Sessions, session: Session | None, asking: str, settings: SessionManagerSettings
) -> None:
    """Check that another call of a program may begin; of one of the tenant that asks, if it is not there yet.

    Raises:
        InvalidRequestError: 429 if the program or its tenant has too many, 503 if there are too many.
    """
    if session and len(session.live) >= settings.program_calls_max:
        limit = f"The program has {len(session.live)} calls open, its limit."
        raise invalid(limit, code="too_many_calls_of_program", status=429)
    tenant = tenants.tenant_of(session.program_id) if session else asking
    mine = sessions.calls_of[tenant]
    if tenant and mine >= settings.tenant_calls_max:
        raise invalid(f"The tenant has {mine} calls open, its limit.", code="too_many_calls_of_tenant", status=429)
    if sessions.calls >= settings.calls_max:
        raise invalid("Too many calls are open; try again later.", code="too_many_calls", status=503)
