"""The gateway's HTTP application: routes, error shapes, and the exchange of one call."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.types import Receive, Scope, Send

from autellix.schemas import subjects
from autellix.schemas.messages import Failed, Finished, GetMetrics, MetricsText
from autellix.schemas.openai import APIS, invalid
from autellix.services import tracing
from autellix.services.api_keys import ApiKeys
from autellix.services.bus import Bus
from autellix.services.config import GatewaySettings
from autellix.services.gateway import answers, failures, submission
from autellix.services.gateway.asking import Services
from autellix.services.gateway.core import EngineRotation
from autellix.services.gateway.dashboard import Dashboard
from autellix.services.gateway.door import Door
from autellix.services.gateway.errors import ERRORS, on_error, request_id
from autellix.services.gateway.identity import Identities
from autellix.services.gateway.listens import LISTENS
from autellix.services.gateway.programs import program_routes
from autellix.services.gateway.results import result_routes
from autellix.services.gateway.shapes import shape_of
from autellix.services.gateway.streams import CallStream, Inbox
from autellix.services.process import VERSION
from autellix.services.runner import CoreRunner
from autellix.services.web import WebServer, health_routes

log = structlog.get_logger()


@asynccontextmanager
async def gateway(bus: Bus, settings: GatewaySettings, *, silence_s: float) -> AsyncIterator[WebServer]:
    """Serve HTTP over `bus` for as long as the context lasts; calls that outlast the drain end with an error."""
    rotation = EngineRotation(silence_s)
    async with Inbox(bus) as inbox, CoreRunner(bus, rotation, LISTENS):
        dashboard = Dashboard(bus, Services(bus, settings.first_frame_s))
        app = application(bus, inbox, rotation, dashboard, settings)
        keys = ApiKeys(Path(settings.api_keys)) if settings.api_keys else None
        async with WebServer(Door(app, keys), settings, drain_s=settings.drain_s + 5) as server:
            try:
                yield server
            finally:
                await dashboard.close()
                asyncio.get_running_loop().call_later(settings.drain_s, inbox.fail_all, failures.STOPPING)


def application(
    bus: Bus, inbox: Inbox, rotation: EngineRotation, dashboard: Dashboard, settings: GatewaySettings
) -> Starlette:
    """Return the ASGI application."""

    def why_not_ready() -> str | None:
        if not bus.connected:
            return "the message bus cannot be reached"
        return "no engine is in rotation" if rotation.empty else None

    identities = Identities()
    calls = [Route(api, CallEndpoint(api, inbox, identities, settings), methods=["POST"]) for api in APIS]
    own = [Route("/version", version)]
    models = [Route("/v1/models", Models(rotation).all), Route("/v1/models/{model:path}", Models(rotation).one)]
    services = Services(bus, settings.first_frame_s)
    own += [
        Route("/metrics", Metrics(services).all, methods=["GET"]),
        *program_routes(services),
        *result_routes(services),
    ]
    own += [*dashboard.routes(), *health_routes(why_not_ready)]
    within = Router([*calls, *models], redirect_slashes=False)  # for who can be told a URL and nothing else
    app = Starlette(
        routes=[*calls, *models, *own, Mount("/programs/{program}", within)],
        exception_handlers=dict.fromkeys(ERRORS, on_error),
    )
    app.router.redirect_slashes = False
    return app


async def version(_: Request) -> Response:
    """Answer which version this is."""
    return answers.as_json({"version": VERSION}, {})


class Metrics:
    """`GET /metrics`: what the metrics service shows, for who scrapes where the API is, as with vLLM's server."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def all(self, _: Request) -> Response:
        """Return all metrics."""
        answer = await self._services.ask(subjects.METRICS_GET, GetMetrics())
        if isinstance(answer, MetricsText):
            return Response(answer.text, media_type="text/plain; version=0.0.4")
        return answers.failure(answer if isinstance(answer, Failed) else failures.BAD_FRAME, {})


class CallEndpoint:
    """`POST` of one API: an ASGI application."""

    def __init__(self, api: str, inbox: Inbox, identities: Identities, settings: GatewaySettings) -> None:
        self._api = api
        self._inbox = inbox
        self._identities = identities
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Submit the call that the request asks for and answer with what comes back."""
        request = Request(scope, receive)
        limit = self._settings.body_bytes_max
        call = await submission.read(request, self._api, self._identities, bytes_max=limit)
        await _while_connected(receive, self._exchange(call, request, send))

    async def _exchange(self, call: submission.Submission, request: Request, send: Send) -> None:
        outcome = {"outcome": "hung up"}
        name, about = tracing.asked(self._api, call.model)
        span = tracing.span(name, call.trace, about, server=True)
        facts: tracing.Attributes = {}
        try:
            submitted = self._inbox.submit(call.payload, trace=span.context, final=call.final, tenant=call.tenant)
            async with submitted as stream:
                try:
                    await stream.accepted(self._settings.first_frame_s)
                    response = await answers.answer(
                        stream,
                        shape_of(self._api),
                        streamed=call.stream,
                        heartbeat_s=self._settings.heartbeat_s,
                        request_id=request_id(request),
                    )
                    await response(request.scope, request.receive, send)
                    outcome = _outcome(stream.end)
                finally:
                    facts = _facts(stream)
                    log.info("call", api=self._api, call_id=stream.call_id, program_id=stream.program_id, **outcome)
        finally:
            finished = outcome["outcome"] == "finished"
            span.end(facts, error="" if finished else outcome["outcome"])


def _facts(stream: CallStream) -> tracing.Attributes:
    """Return what is known of a call in the end, by the names that OpenTelemetry has for it."""
    known = {"autellix.call.id": stream.call_id or "", "gen_ai.conversation.id": stream.program_id or ""}
    facts: dict[str, str | int | float | bool] = {name: value for name, value in known.items() if value}
    if isinstance(stream.end, Finished):
        facts |= tracing.used(stream.end.call)
    return facts


def _outcome(end: Finished | Failed | None) -> dict[str, str]:
    """Return how an answered call ended, for the log."""
    if isinstance(end, Failed):
        why = {"error": end.error.message} if end.status >= 500 else {}  # else it may quote what the client sent
        return {"outcome": end.error.code or str(end.status), **why}
    engine_id = end.call.engine_id if end else None
    return {"outcome": "finished", "engine_id": engine_id} if engine_id else {"outcome": "finished"}


async def _while_connected(receive: Receive, exchange: Coroutine[Any, Any, None]) -> None:
    """Run an exchange to its end, or until the client hangs up, which cancels it."""

    async def hang_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async with asyncio.TaskGroup() as group:
        exchanging = group.create_task(exchange)
        watching = group.create_task(hang_up())
        exchanging.add_done_callback(lambda _: watching.cancel())
        watching.add_done_callback(lambda _: exchanging.cancel())


class Models:
    """`GET /v1/models`: what the engines in rotation serve."""

    def __init__(self, rotation: EngineRotation) -> None:
        self._rotation = rotation

    async def all(self, _: Request) -> Response:
        """Return the list of models."""
        models = [_model(name, since_ms) for name, since_ms in self._rotation.models().items()]
        return answers.as_json({"object": "list", "data": models}, {})

    async def one(self, request: Request) -> Response:
        """Return one model, or 404."""
        name = request.path_params["model"]
        since_ms = self._rotation.models().get(name)
        if since_ms is None:
            raise invalid(f"The model {name[:200]!r} does not exist.", code="model_not_found", status=404)
        return answers.as_json(_model(name, since_ms), {})


def _model(name: str, since_ms: float) -> dict[str, str | int]:
    return {"id": name, "object": "model", "created": int(since_ms / 1000), "owned_by": "autellix"}
