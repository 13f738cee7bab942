"""An HTTP server inside a service process: an ASGI application on one socket, for as long as an `async with` lasts.

uvicorn does the work. It installs no signal handlers here (the runner owns the signals), configures no logging (its
warnings reach the service's log) and ends requests within a bound when the service stops.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Self

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from autellix.services.config import HttpSettings, StartError

KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that none sends a request into a connection just closed."""


class ListenError(StartError, OSError):
    """The address cannot be listened on; the text says which and why."""


class WebServer:
    """One listening server, `async with`: on entry it listens, on exit it takes nothing new and lets requests end."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, *, drain_s: float = 5.0) -> None:
        self._settings = settings
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(drain_s)),
            )
        )
        self.port = settings.port
        """The port that is listened on; after entry never 0."""

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            ListenError: when the address is taken, not ours or not allowed.
        """
        listener = _bind(self._settings.host, self._settings.port)
        self.port = listener.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        await self._server.listening.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; requests that outlast the bound are cancelled, and their clean-up is awaited."""
        requests = self._server.server_state.tasks
        self._server.should_exit = True
        await self._serving
        await asyncio.gather(*requests, return_exceptions=True)


class _Server(uvicorn.Server):
    """uvicorn's server without its hold on the process's signals, telling when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the service."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, and say so."""
        await super().startup(sockets)
        self.listening.set()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ListenError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


def health_routes(why_not_ready: Callable[[], str | None]) -> list[Route]:
    """Return `/health` (the process lives) and `/ready` (it can do its work; else 503 and the reason), with aliases."""

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> JSONResponse:
        reason = why_not_ready()
        if reason:
            return JSONResponse({"status": "not ready", "reason": reason}, HTTPStatus.SERVICE_UNAVAILABLE)
        return JSONResponse({"status": "ready"})

    paths = {"/health": health, "/healthz": health, "/ready": ready, "/readyz": ready}
    return [Route(path, endpoint) for path, endpoint in paths.items()]
