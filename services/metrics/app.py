"""The metrics service: subscriptions to the events it counts, and HTTP for those who scrape.

The gateway's `/metrics` shows the same: it asks on `subjects.METRICS_GET`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final, NamedTuple

from prometheus_client import Metric, generate_latest
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from autellix.schemas import subjects
from autellix.schemas.messages import MetricsText
from autellix.services.bus import Bus, Delivery
from autellix.services.config import MetricsSettings
from autellix.services.core import Out
from autellix.services.metrics import engine_series
from autellix.services.metrics.core import MetricsCore
from autellix.services.metrics.engine_series import EngineSeriesCollector
from autellix.services.metrics.exporter import Exporter
from autellix.services.metrics.listens import GROUP, LISTENS
from autellix.services.publishing import publish
from autellix.services.runner import CoreRunner, Missed, reply_to, wall_ms
from autellix.services.web import WebServer, health_routes

Encoder = Callable[[Any], bytes]
FRESH_S: Final = 1.0
"""How old what the engines told may be."""
SERIES_S: Final = 2.0
"""How long an engine may take to tell its series; who scrapes waits ten seconds by default."""


@asynccontextmanager
async def metrics(
    bus: Bus, settings: MetricsSettings, *, silence_s: float, missed: Missed | None = None
) -> AsyncIterator[WebServer]:
    """Count events and serve the numbers for as long as the context lasts."""
    core = MetricsCore(silence_s)
    shown = Shown(bus, core)
    async with CoreRunner(bus, core, LISTENS, missed=missed), WebServer(application(bus, shown), settings) as server:
        asked = await bus.subscribe(subjects.METRICS_GET, shown.answer, queue=GROUP)
        await bus.flush()
        yield server
        await asked.unsubscribe()


class Families(NamedTuple):
    """Metrics that are collected."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        """Return them, as registries do."""
        return self.families


class Shown:
    """All that is counted: by a core from what it hears, and by the engines themselves."""

    def __init__(self, bus: Bus, core: MetricsCore) -> None:
        self._bus = bus
        self._core = core
        self._asking = asyncio.Lock()
        self._engines: list[Metric] = []
        self._asked_at_s = -inf

    async def text(self, encode: Encoder) -> bytes:
        """Return the numbers as they are now, encoded; in a thread, since engines tell thousands of lines."""
        families = Families([*Exporter(self._core, wall_ms).collect(), *await self._of_engines()])
        return await asyncio.to_thread(encode, families)

    async def _of_engines(self) -> list[Metric]:
        """Return what the engines count; however many ask, each engine is asked once in a while."""
        async with self._asking:
            if time.monotonic() - self._asked_at_s >= FRESH_S:
                texts = await engine_series.ask(self._bus, self._core.reporting(wall_ms()), SERIES_S)
                self._engines = await asyncio.to_thread(lambda: list(EngineSeriesCollector(texts).collect()))
                self._asked_at_s = time.monotonic()
            return self._engines

    async def answer(self, delivery: Delivery) -> None:
        """Answer who asks over the bus."""
        reply = reply_to(delivery)
        if reply:
            text = (await self.text(generate_latest)).decode()
            await publish(self._bus, Out(reply.subject, MetricsText(text=text), reply.as_json))


def application(bus: Bus, shown: Shown) -> Starlette:
    """Return the ASGI application that shows the numbers."""

    async def expose(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(await shown.text(encode), headers={"Content-Type": content_type})

    def why_not_ready() -> str | None:
        return None if bus.connected else "the message bus cannot be reached"

    return Starlette(routes=[Route("/metrics", expose), *health_routes(why_not_ready)])
