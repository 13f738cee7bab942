"""The metrics service: subscriptions to the events it counts, and HTTP for those who scrape.

The gateway's `/metrics` shows the same: it asks on `subjects.METRICS_GET`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from autellix.schemas import subjects
from autellix.schemas.codec import is_json
from autellix.schemas.messages import MetricsText
from autellix.services.bus import Bus, Delivery
from autellix.services.config import MetricsSettings
from autellix.services.core import Out
from autellix.services.metrics import engine_series
from autellix.services.metrics.core import MetricsCore
from autellix.services.metrics.engine_series import EngineSeriesCollector
from autellix.services.metrics.exporter import Exporter
from autellix.services.metrics.listens import GROUP, LISTENS
from autellix.services.runner import CoreRunner, publish, wall_ms
from autellix.services.web import WebServer, health_routes

SERIES_S: Final = 2.0
"""How long an engine may take to tell its series; who scrapes waits ten seconds by default."""


@asynccontextmanager
async def metrics(bus: Bus, settings: MetricsSettings, *, silence_s: float) -> AsyncIterator[WebServer]:
    """Count events and serve the numbers for as long as the context lasts."""
    core = MetricsCore(silence_s)
    shown = Shown(bus, core)
    async with CoreRunner(bus, core, LISTENS), WebServer(application(bus, shown), settings) as server:
        asked = await bus.subscribe(subjects.METRICS_GET, shown.answer, queue=GROUP)
        yield server
        await asked.unsubscribe()


class Shown:
    """All that is counted: by a core from what it hears, and by the engines themselves."""

    def __init__(self, bus: Bus, core: MetricsCore) -> None:
        self._bus = bus
        self._core = core

    async def registry(self) -> CollectorRegistry:
        """Return the numbers as they are now."""
        registry = CollectorRegistry()
        registry.register(Exporter(self._core, wall_ms))
        texts = await engine_series.ask(self._bus, self._core.reporting(wall_ms()), SERIES_S)
        registry.register(EngineSeriesCollector(texts))
        return registry

    async def answer(self, delivery: Delivery) -> None:
        """Answer who asks over the bus."""
        text = generate_latest(await self.registry()).decode()
        if delivery.reply:
            await publish(self._bus, Out(delivery.reply, MetricsText(text=text), is_json(delivery.data)))


def application(bus: Bus, shown: Shown) -> Starlette:
    """Return the ASGI application that shows the numbers."""

    async def expose(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(await shown.registry()), headers={"Content-Type": content_type})

    def why_not_ready() -> str | None:
        return None if bus.connected else "the message bus cannot be reached"

    return Starlette(routes=[Route("/metrics", expose), *health_routes(why_not_ready)])
