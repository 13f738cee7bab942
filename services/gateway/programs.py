"""`DELETE /v1/programs/{id}`: end a program over HTTP, as `autellix.sessions.end` does over NATS.

An agent that says when it is over frees what the engines keep for it; without a word it expires some time later.
"""

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from autellix.schemas import subjects
from autellix.schemas.codec import encode
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import EndSession, Failed
from autellix.services.bus import Bus, BusDownError, Delivery
from autellix.services.gateway import answers, failures


def program_routes(bus: Bus, patience_s: float) -> list[Route]:
    """Return the route; an end that nobody confirms within `patience_s` seconds is answered with 503."""

    async def end(request: Request) -> Response:
        failed = await _end(bus, ProgramId(request.path_params["program_id"]), patience_s)
        return answers.failure(failed, {}) if failed else Response(status_code=HTTPStatus.NO_CONTENT)

    return [Route("/v1/programs/{program_id}", end, methods=["DELETE"])]


async def _end(bus: Bus, program_id: ProgramId, patience_s: float) -> Failed | None:
    """End a program; return what went wrong. To end one that is over, or never was, is no error."""
    confirmed, inbox = asyncio.Event(), bus.new_inbox()

    async def confirm(delivery: Delivery) -> None:
        if delivery.data:  # an empty message is NATS's way to say that nobody listens
            confirmed.set()

    subscription = await bus.subscribe(inbox, confirm)
    try:
        await bus.publish(subjects.SESSIONS_END, encode(EndSession(program_id=program_id)), reply=inbox)
        async with asyncio.timeout(patience_s):
            await confirmed.wait()
    except TimeoutError:
        return failures.not_confirmed(patience_s)
    except BusDownError:
        return failures.BUS_DOWN
    finally:
        await subscription.unsubscribe()
    return None
