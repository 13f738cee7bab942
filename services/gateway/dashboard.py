"""The page at `/`: programs, queues and engines, live, and what the calls of a chosen program did when.

It is three files beside this one and needs nothing else: no build, no internet. Its stream has the process table and
the engines once a second, and every event of a call as it comes. Where nobody looks, nothing is asked. A tenant's
programs are seen with a key of the tenant's.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from autellix.schemas import subjects, tenants
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import CALL_EVENTS, MalformedMessageError
from autellix.schemas.messages import EngineList, ListEngines, ListPrograms, ProgramList
from autellix.services.bus import Bus, BusDownError, Delivery
from autellix.services.gateway import answers
from autellix.services.gateway.asking import Services
from autellix.services.gateway.door import tenant_of

log = structlog.get_logger()

EVERY_S: Final = 1.0
VIEWERS_MAX: Final = 32
"""Of one tenant; so none can take the places of another."""
EVENTS_MAX: Final = 2000
"""Events that wait for a viewer who reads slowly; more are left out."""
RUNNING_MAX: Final = 500
ENDED_SHOWN: Final = 20

FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
}
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; img-src data:; "
    + "; ".join(f"{kind}-src 'self'" for kind in ("script", "style", "connect")),
    "X-Content-Type-Options": "nosniff",
}


class Dashboard:
    """The page and the streams of those who look at it, of each tenant in a room of its own.

    Args:
        bus: Where call events are.
        services: Who is asked for programs and engines.
    """

    def __init__(self, bus: Bus, services: Services) -> None:
        self._bus = bus
        self._services = services
        self._rooms: dict[str, Room] = {}
        self._is_closed = False

    def routes(self) -> list[Route]:
        """Return the page's routes."""
        pages = [Route(f"/{path}", _page(*known)) for path, known in FILES.items()]
        return [*pages, Route("/page/stream", self.stream)]

    async def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for room in list(self._rooms.values()):
            await room.close()

    async def stream(self, request: Request) -> Response:
        """Stream what a viewer sees."""
        room = self._rooms.get(tenant_of(request))
        if self._is_closed or (room is not None and len(room) >= VIEWERS_MAX):
            body = ErrorBody(message="Too many look already.", type="server_error", code="too_many_viewers")
            return answers.error(HTTPStatus.SERVICE_UNAVAILABLE, body, {"Retry-After": "10"})
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        seen = self._seen(tenant_of(request))
        return StreamingResponse(seen, media_type="text/event-stream", headers=headers)

    async def _seen(self, tenant: str) -> AsyncIterator[bytes]:
        """Yield what is seen in a tenant's room, which is there while somebody is in it."""
        room = self._rooms.setdefault(tenant, Room(tenant, self._bus, self._services))
        try:
            async with aclosing(room.seen()) as events:
                async for event in events:
                    yield event
        finally:  # nothing is awaited here: who leaves is cancelled
            if not len(room):
                self._rooms.pop(tenant, None)


class Room:
    """Those who see the programs of one tenant: all see what one task has heard and asked for."""

    def __init__(self, tenant: str, bus: Bus, services: Services) -> None:
        self._tenant = tenant
        self._bus = bus
        self._services = services
        self._viewers: set[asyncio.Queue[bytes | None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._viewers)

    async def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        if self._watching:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        for viewer in self._viewers:
            if viewer.full():
                viewer.get_nowait()
            viewer.put_nowait(None)

    async def seen(self) -> AsyncGenerator[bytes, None]:
        """Yield events of the stream until the viewer leaves or the gateway stops."""
        viewer: asyncio.Queue[bytes | None] = asyncio.Queue(EVENTS_MAX)
        self._viewers.add(viewer)
        try:
            if self._watching is None or self._watching.done():
                self._watching = asyncio.create_task(self._watch())
            yield b": hello\n\n"
            while event := await viewer.get():
                yield event
        finally:  # nothing is awaited here: who leaves is cancelled
            self._viewers.discard(viewer)

    async def _watch(self) -> None:
        """Tell all viewers what happens, as long as there are any."""

        async def hear(delivery: Delivery) -> None:
            with contextlib.suppress(MalformedMessageError):
                self._tell(_event("call", CALL_EVENTS.decode(delivery.data)))

        try:
            subscription = await self._bus.subscribe(tenants.subject_of(self._tenant, subjects.CALL_EVENTS), hear)
        except BusDownError as error:
            log.warning("the page shows no calls", error=str(error))
            self._watching = None
            return
        try:
            while self._viewers and not self._is_closed:
                self._tell(_event("state", await self._state()))
                await asyncio.sleep(EVERY_S)
        finally:
            self._watching = None  # who comes now needs another
            await subscription.unsubscribe()

    def _tell(self, event: bytes) -> None:
        for viewer in self._viewers:
            if not viewer.full():
                viewer.put_nowait(event)

    async def _state(self) -> dict[str, Any]:
        """Return what is shown: who runs, who ended last, and the engines; null where nobody answers."""
        asked = ListPrograms(ended_max=ENDED_SHOWN, running_max=RUNNING_MAX, with_threads=False)
        programs, engines = await asyncio.gather(
            self._services.ask(subjects.PROGRAMS_LIST, asked, self._tenant),
            self._services.ask(subjects.ENGINES_LIST, ListEngines(), self._tenant),
        )
        return {
            "programs": programs.programs if isinstance(programs, ProgramList) else None,
            "at_ms": programs.at_ms if isinstance(programs, ProgramList) else None,
            "engines": engines.engines if isinstance(engines, EngineList) else None,
        }


def _event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


def _page(name: str, media_type: str) -> Any:
    content = files("autellix.services.gateway").joinpath("page", name).read_bytes()

    async def page(_: Request) -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return page
