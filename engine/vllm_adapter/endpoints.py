"""Calls the functions behind vLLM's endpoints directly, past its HTTP application.

What the application adds to a call, layers of middleware and tasks that notice a client that hung up, takes as much
processor time as the function itself, and again for every token of a stream. Nobody hangs up here but the caller, who
cancels.

The rules stay vLLM's: a body that is none of its kind goes through the application, which says what is wrong with it;
what an endpoint raises is worded by the handlers that the application has for it. So does everything whose endpoint has
another form than those known here.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, NamedTuple, get_type_hints

import msgspec
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import StreamingResponse

from autellix.engine.executor import Refusal
from autellix.engine.vllm_adapter import asgi
from autellix.engine.vllm_adapter.asgi import Part


class Endpoint(NamedTuple):
    """One function, with the names of its two parameters."""

    function: Callable[..., Any]
    body: str
    raw: str
    model: type[BaseModel]
    """What its body is."""


class Endpoints:
    """vLLM's application, and those of its endpoints that can be called directly.

    Args:
        app: The application.
        paths: Of the endpoints.
    """

    def __init__(self, app: Any, paths: Iterable[str]) -> None:
        self._app = app
        wanted = set(paths)
        routes = [route for route in getattr(app, "routes", ()) if getattr(route, "path", None) in wanted]
        found = {route.path: _endpoint(route.endpoint) for route in routes if "POST" in route.methods}
        self._direct = {path: endpoint for path, endpoint in found.items() if endpoint}

    @property
    def direct(self) -> frozenset[str]:
        """The paths of the endpoints that are called directly."""
        return frozenset(self._direct)

    async def exchange(self, path: str, body: bytes, headers: dict[str, str]) -> AsyncGenerator[Part, None]:
        """Send one request and yield the answer's parts; closing the iterator early aborts it.

        Raises:
            Exception: what an endpoint raised and the application has no words for.
        """
        endpoint = self._direct.get(path)
        response = await self._called(endpoint, path, body, headers) if endpoint else None
        if response is None:
            async with aclosing(asgi.exchange(self._app, path, body, headers)) as parts:
                async for part in parts:
                    yield part
            return
        yield Part(response.status_code, b"")
        if not isinstance(response, StreamingResponse):
            yield Part(None, bytes(response.body))
            return
        pieces: Any = response.body_iterator
        async with aclosing(pieces):
            async for piece in pieces:
                yield Part(None, piece.encode() if isinstance(piece, str) else bytes(piece))

    async def refusal(self, path: str, error: Exception) -> Refusal | None:
        """Return the refusal that an error means, None if the application does not blame the client for it."""
        if not any(kind in self._app.exception_handlers for kind in type(error).__mro__):
            return None
        response = await self._worded(Request(asgi.scope(self._app, path, {})), error)
        found = asgi.refusal(msgspec.json.decode(bytes(response.body)), response.status_code)
        return found if found.status < 500 else None

    async def _called(self, endpoint: Endpoint, path: str, body: bytes, headers: dict[str, str]) -> Any:
        """Return an endpoint's response, None if the application has to say what is wrong with the body."""
        raw = Request(asgi.scope(self._app, path, headers))
        try:
            asked = endpoint.model.model_validate(msgspec.json.decode(body))
        except Exception:  # noqa: BLE001 - nothing was generated; the application comes to the same and words it
            return None
        try:
            response = await endpoint.function(**{endpoint.body: asked, endpoint.raw: raw})
        except Exception as error:  # noqa: BLE001 - worded, or raised again
            _go_if_cancelled()
            response = await self._worded(raw, error)
        _go_if_cancelled()
        return response

    async def _worded(self, raw: Request, error: Exception) -> Any:
        """Return the response that the application has for an error."""
        handlers = self._app.exception_handlers
        handle = next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
        if handle is None:
            raise error
        response = handle(raw, error)
        return await response if inspect.isawaitable(response) else response


def _go_if_cancelled() -> None:
    """Raise what vLLM's endpoints catch: they take a task that is cancelled for a client that hung up, and answer."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


def _endpoint(function: Callable[..., Any]) -> Endpoint | None:
    """Return how a route's function is called, None if it is not a body and a request that it takes."""
    inner = inspect.unwrap(function)  # without what watches for a client that hangs up
    kinds = {name: kind for name, kind in get_type_hints(inner).items() if name != "return"}
    bodies = [name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, BaseModel)]
    raws = [name for name, kind in kinds.items() if kind is Request]
    if not inspect.iscoroutinefunction(inner) or len(bodies) != 1 or len(raws) != 1 or len(kinds) != 2:
        return None
    return Endpoint(inner, bodies[0], raws[0], kinds[bodies[0]])
