"""Endpoints called past their application: the same answers, and the application's own words for what is refused."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, model_validator

from autellix.engine.vllm_adapter import asgi
from autellix.engine.vllm_adapter.asgi import Part
from autellix.engine.vllm_adapter.endpoints import Endpoints

PATHS = ("/answer", "/stream", "/refuse", "/odd", "/missing")
HEADERS = {"x-request-id": "r1"}


class OddError(Exception):
    """What a body's own rules raise that pydantic does not turn into its own error."""


class Asked(BaseModel):
    """What all endpoints here take."""

    count: int
    raises: bool = False

    @model_validator(mode="before")
    @classmethod
    def no_sevens(cls, fields: Any) -> Any:
        """Refuse in a way of its own, as vLLM's models do."""
        if isinstance(fields, dict) and fields.get("count") == 7:
            raise OddError("seven")
        return fields


app = FastAPI()
app.state.known = "state"
closed = asyncio.Event()


@app.post("/answer")
async def answer(request: Asked, raw_request: Request) -> Response:
    """Answer with what came, as vLLM's do: by its own parameters, the headers, and the application's state."""
    known = [request.count, raw_request.headers["x-request-id"], raw_request.app.state.known]
    return JSONResponse(known, status_code=201)


@app.post("/stream")
async def stream(request: Asked, raw_request: Request) -> Response:
    """Stream numbers."""

    async def pieces() -> AsyncIterator[str]:
        try:
            for number in range(request.count):
                yield f"data: {number}\n\n"
        finally:
            closed.set()

    return StreamingResponse(pieces(), media_type="text/event-stream")


@app.post("/refuse")
async def refuse(request: Asked, raw_request: Request) -> Response:
    """Raise what the application has words for."""
    raise ValueError(f"not {request.count}")


@app.exception_handler(OddError)
@app.exception_handler(ValueError)
async def refused(_: Request, error: ValueError) -> Response:
    """Word it."""
    return JSONResponse({"error": {"message": str(error)}}, status_code=418)


def unknown() -> int:
    """Return what an endpoint of another form depends on."""
    return 7


@app.post("/odd")
async def odd(request: Asked, number: int = Depends(unknown)) -> Response:
    """Take other parameters than vLLM's generating endpoints do."""
    return JSONResponse([request.count, number])


async def both(path: str, body: Any) -> list[list[Part]]:
    """Return the parts of an answer: directly, and through the application."""
    text = msgspec.json.encode(body)
    direct = [part async for part in Endpoints(app, PATHS).exchange(path, text, HEADERS)]
    through = [part async for part in asgi.exchange(app, path, text, HEADERS)]
    return [[part for part in parts if part.body or part.status] for parts in (direct, through)]


def test_which_are_called_directly() -> None:
    """Those that take a body and a request; all others, and what is no such application, go the long way."""
    assert Endpoints(app, PATHS).direct == {"/answer", "/stream", "/refuse"}
    assert Endpoints(object(), PATHS).direct == frozenset()


@pytest.mark.parametrize("path", ["/answer", "/stream", "/refuse", "/odd", "/missing"])
@pytest.mark.parametrize("body", [{"count": 3}, {"count": "many"}, {"count": 7}, {}, [], None])
async def test_same_answers(path: str, body: Any) -> None:
    """Whatever is asked, the answer is the application's."""
    direct, through = await both(path, body)

    assert direct == through


async def test_nothing_between() -> None:
    """An endpoint that is called directly is called once, in the caller's own task."""
    tasks: list[Any] = []

    async def endpoint(request: Asked, raw_request: Request) -> Response:
        tasks.append(asyncio.current_task())
        return JSONResponse({})

    own = FastAPI()
    own.post("/answer")(endpoint)
    _ = [part async for part in Endpoints(own, PATHS).exchange("/answer", b'{"count": 1}', HEADERS)]

    assert tasks == [asyncio.current_task()]


async def test_nothing_is_asked_twice() -> None:
    """An endpoint that raises, perhaps after it has generated, is asked once; an error without words is raised."""
    asked = 0

    async def endpoint(request: Asked, raw_request: Request) -> Response:
        nonlocal asked
        asked += 1
        raise KeyError("odd") if request.raises else ValueError("known")

    own = FastAPI(exception_handlers={ValueError: refused})
    own.post("/answer")(endpoint)
    parts = [part async for part in Endpoints(own, PATHS).exchange("/answer", b'{"count": 1}', HEADERS)]
    with pytest.raises(KeyError, match="odd"):
        _ = [p async for p in Endpoints(own, PATHS).exchange("/answer", b'{"count": 1, "raises": true}', HEADERS)]

    assert (asked, parts[0].status) == (2, 418)


async def test_close() -> None:
    """Who leaves a stream early ends the endpoint's iterator."""
    closed.clear()
    parts = Endpoints(app, PATHS).exchange("/stream", b'{"count": 100}', HEADERS)
    assert [await anext(parts), (await anext(parts)).body] == [Part(200, b""), b"data: 0\n\n"]
    await parts.aclose()

    assert closed.is_set()


async def test_cancelled() -> None:
    """An endpoint that answers when it is cancelled does not keep its caller from being cancelled."""
    begun = asyncio.Event()

    async def endpoint(request: Asked, raw_request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return JSONResponse({"error": "Client disconnected"}, status_code=400)
        return JSONResponse({})

    own = FastAPI()
    own.post("/answer")(endpoint)

    async def exchange() -> list[Part]:
        return [part async for part in Endpoints(own, PATHS).exchange("/answer", b'{"count": 1}', HEADERS)]

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await exchange()
    task = asyncio.create_task(exchange())
    begun.clear()
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
