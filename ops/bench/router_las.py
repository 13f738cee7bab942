"""A router in front of vLLM's own server that knows programs: the one that was served least goes first.

It stands for what a program-aware router does that must leave the engine as it is: it lets so many calls into the
engine as that has slots, keeps the others, and takes next a call of the program with the least attained service, the
sum of the time that its ended calls spent in the engine. What is inside is never displaced. Programs are told apart by
the headers of our gateway, `X-Autellix-Program-Id` or else `X-Session-ID`; a call without is a program of its own.

`python ops/bench/router_las.py --port 8000 --slots 8 -- COMMAND ...` starts the engine itself, by the command with
`--port` and a free one appended, and stops it at the end.
"""

import argparse
import asyncio
import itertools
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from autellix.client.stack import free_port

PROGRAM_HEADERS = ("x-autellix-program-id", "x-session-id")
PROGRAMS_MAX = 10_000
"""Programs whose service is remembered; those without a call for longest are forgotten first."""
PASSED_ON = ("content-type", "authorization")
"""Headers of a request that the engine sees."""
BAD_GATEWAY = 502


class Waiting(NamedTuple):
    """A call that waits for its turn."""

    program: str
    turn: asyncio.Future[None]


class Admission:
    """Lets so many calls in at once, the next from the program that was served least; ties in order of arrival."""

    def __init__(self, slots: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = slots
        self._clock = clock
        self._waiting: list[Waiting] = []
        self._attained_s: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, program: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it; the time it is held is charged to the program."""
        await self._enter(program)
        began_s = self._clock()
        try:
            yield
        finally:
            self._charge(program, self._clock() - began_s)
            self._leave()

    async def _enter(self, program: str) -> None:
        call = Waiting(program, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._admit()
        try:
            await call.turn
        except asyncio.CancelledError:
            if call in self._waiting:
                self._waiting.remove(call)
            else:  # its turn had just come
                self._leave()
            raise

    def _admit(self) -> None:
        while self._free and self._waiting:
            call = min(self._waiting, key=lambda waiting: self._attained_s.get(waiting.program, 0.0))
            self._waiting.remove(call)
            self._free -= 1
            call.turn.set_result(None)

    def _leave(self) -> None:
        self._free += 1
        self._admit()

    def _charge(self, program: str, seconds: float) -> None:
        self._attained_s[program] = self._attained_s.pop(program, 0.0) + seconds
        if len(self._attained_s) > PROGRAMS_MAX:
            del self._attained_s[next(iter(self._attained_s))]


class Router:
    """The ASGI application: calls wait for their turn, everything else is passed on at once."""

    def __init__(self, http: httpx.AsyncClient, admission: Admission) -> None:
        self._http = http
        self._admission = admission
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request with what the engine answers."""
        request = Request(scope, receive)
        if request.method == "POST":
            async with self._admission.turn(self._program(request)):
                await self._pass_on(request, send)
        else:
            await self._pass_on(request, send)

    def _program(self, request: Request) -> str:
        named = (request.headers.get(header) for header in PROGRAM_HEADERS)
        return next(filter(None, named), f"call {next(self._numbers)}")

    async def _pass_on(self, request: Request, send: Send) -> None:
        answer = await self._asked(request)
        if answer is None:
            response: Response = PlainTextResponse("The engine does not answer.", BAD_GATEWAY)
            await response(request.scope, request.receive, send)
            return
        try:
            kind = {"content-type": answer.headers.get("content-type", "text/plain")}
            response = StreamingResponse(answer.aiter_raw(), answer.status_code, kind)
            await response(request.scope, request.receive, send)
        finally:
            await answer.aclose()

    async def _asked(self, request: Request) -> httpx.Response | None:
        """Return the engine's answer, of which only the head has come yet."""
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        body = await request.body()
        asked = self._http.build_request(request.method, request.url.path, content=body, headers=headers)
        try:
            return await self._http.send(asked, stream=True)
        except httpx.TransportError:
            return None


@asynccontextmanager
async def engine(command: Sequence[str]) -> AsyncIterator[None]:
    """Run the engine for as long as the context lasts; the router goes with it when it ends by itself."""
    process = await asyncio.create_subprocess_exec(*command)
    ended = asyncio.create_task(process.wait())
    ended.add_done_callback(_stop)
    try:
        yield
    finally:
        ended.remove_done_callback(_stop)
        with suppress(ProcessLookupError):
            process.terminate()
        await ended


def _stop(_ended: object) -> None:
    signal.raise_signal(signal.SIGTERM)


def application(slots: int, command: Sequence[str]) -> Starlette:
    """Return the router, which starts and stops the engine with itself."""
    port = free_port()
    http = httpx.AsyncClient(  # a patient client, as the others that are compared  # nosec B113
        base_url=f"http://127.0.0.1:{port}",
        limits=httpx.Limits(max_connections=None),
        timeout=None,  # noqa: S113 - an answer takes as long as it takes
    )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with engine([*command, "--port", str(port)]), http:
            yield

    return Starlette(routes=[Mount("/", Router(http, Admission(slots)))], lifespan=lifespan)


def main() -> None:
    """Route until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="of the router")
    parser.add_argument("--slots", type=int, required=True, help="calls in the engine at once")
    parser.add_argument("command", nargs="+", help="starts the engine")
    arguments = parser.parse_args()
    app = application(arguments.slots, arguments.command)
    uvicorn.run(app, host="127.0.0.1", port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
