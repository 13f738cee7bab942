"""A call that is lost between the services, on both buses: who waits for it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autellix.schemas import subjects
from autellix.schemas.codec import FRAMES, encode
from autellix.schemas.messages import Accepted, Failed, SubmitCall
from autellix.services.config import SessionManagerSettings
from autellix.services.runner import CoreRunner
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.listens import LISTENS

if TYPE_CHECKING:
    from tests.bus.conftest import Connect, Inbox


async def test_nobody_behind_the_session_manager(connected: Connect, inbox: Inbox) -> None:
    """A call that is accepted while no process table runs ends in a failure, not in silence."""
    manager = SessionManager(SessionManagerSettings(), new_id=lambda: "id", secret=b"key")
    call = SubmitCall(body={"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    async with CoreRunner(await connected(), manager, LISTENS, tick_s=0.005):
        bus = await connected()
        await bus.subscribe("answers", inbox)
        await bus.flush()
        await bus.publish(subjects.CALLS_SUBMIT, encode(call), reply="answers")
        accepted, failed = [FRAMES.decode(data) for data in await inbox.data(2)]

    assert isinstance(accepted, Accepted)
    assert isinstance(failed, Failed)
    assert (failed.call_id, failed.status, failed.error.code) == (accepted.call_id, 503, "not_routed")
