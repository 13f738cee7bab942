"""How a program is ended over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autellix.schemas import subjects
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import EndSession, SessionEnded

if TYPE_CHECKING:
    from autellix.services.bus import Delivery
    from tests.gateway.conftest import Front

REQUESTS = Decoder[EndSession](EndSession)


async def test_delete_ends_the_program(front: Front) -> None:
    """The session manager is told, and the answer comes when it has confirmed."""
    heard: list[EndSession] = []

    async def on_end(delivery: Delivery) -> None:
        heard.append(REQUESTS.decode(delivery.data))
        await front.bus.publish(delivery.reply, encode(SessionEnded(program_id=heard[0].program_id)))

    await front.bus.subscribe(subjects.SESSIONS_END, on_end)
    await front.bus.flush()
    answer = await front.http.delete("/v1/programs/p-1")

    assert (204, b"") == (answer.status_code, answer.content)
    assert [EndSession(program_id=ProgramId("p-1"))] == heard


async def test_end_that_nobody_confirms(hasty: Front) -> None:
    """Without a session manager the answer is 503 after a bounded time, and says so."""
    answer = await hasty.http.delete("/v1/programs/p-1")

    assert 503 == answer.status_code
    assert "not_confirmed" == answer.json()["error"]["code"]


async def test_programs_cannot_be_read(front: Front) -> None:
    """There is nothing else to do with a program here."""
    assert 405 == (await front.http.get("/v1/programs/p-1")).status_code
