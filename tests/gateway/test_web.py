"""The HTTP server inside a service."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import httpx

from autellix.services.config import GatewaySettings
from autellix.services.web import WebServer

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class Stuck:
    """An application whose answers never come, and that tells when it was cancelled."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cleaned_up = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for ever."""
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.cleaned_up = True


async def test_signals_stay_the_services() -> None:
    """The server leaves the process's signal handlers as they are."""
    before = [signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)]
    async with WebServer(Stuck(), GatewaySettings(port=0)) as server:
        during = [signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)]

    assert during == before
    assert server.port != 0


async def test_stuck_requests_are_cancelled() -> None:
    """A request that outlasts the drain is cancelled, and the server waits for its clean-up."""
    app = Stuck()
    async with httpx.AsyncClient() as http:
        async with WebServer(app, GatewaySettings(port=0), drain_s=1) as server:
            asking = asyncio.create_task(http.get(f"http://127.0.0.1:{server.port}/"))
            await app.asked.wait()
        answer = await asking

    assert answer.status_code == 500
    assert app.cleaned_up
