"""The metrics service: subscriptions to the events it counts, and HTTP for those who scrape."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from autellix.services.bus import Bus
from autellix.services.config import MetricsSettings
from autellix.services.metrics.core import MetricsCore
from autellix.services.metrics.exporter import Exporter
from autellix.services.metrics.listens import LISTENS
from autellix.services.runner import CoreRunner, wall_ms
from autellix.services.web import WebServer, health_routes


@asynccontextmanager
async def metrics(bus: Bus, settings: MetricsSettings, *, silence_s: float) -> AsyncIterator[WebServer]:
    """Count events and serve the numbers for as long as the context lasts."""
    core = MetricsCore(silence_s)
    app = application(core, lambda: None if bus.connected else "the message bus cannot be reached")
    async with CoreRunner(bus, core, LISTENS), WebServer(app, settings) as server:
        yield server


def application(core: MetricsCore, why_not_ready: Callable[[], str | None]) -> Starlette:
    """Return the ASGI application that shows a core's numbers."""
    registry = CollectorRegistry()
    registry.register(Exporter(core, wall_ms))

    async def expose(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    return Starlette(routes=[Route("/metrics", expose), *health_routes(why_not_ready)])
