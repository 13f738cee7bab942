"""Programs over HTTP: what `autellix.sessions.*` and `autellix.programs.*` are over NATS.

| request | what it does |
|---|---|
| `POST /v1/programs` | begin a program; body: `name`, `agent`, `ttl_s`, each optional |
| `GET /v1/programs` | the process table; `?state=running` leaves out those that are over |
| `GET /v1/programs/{id}` | one program |
| `DELETE /v1/programs/{id}` | end it and cancel what it still runs |
| `POST /programs/release` | the same, as ThunderAgent's clients say it: `{"program_id": ...}` |

A named program may be called by its name everywhere. An agent that says when it is over frees what the engines keep for
it; without a word it expires some time later.
"""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from autellix.schemas import subjects
from autellix.schemas.base import Message
from autellix.schemas.codec import Decoder, MalformedMessageError, encode
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import (
    EndSession,
    Failed,
    GetProgram,
    ListPrograms,
    ProgramList,
    ProgramRecord,
    SessionAnswer,
    SessionEnded,
    SessionStarted,
    StartSession,
    TableAnswer,
)
from autellix.schemas.openai import invalid
from autellix.services.bus import Bus, BusDownError, Delivery
from autellix.services.gateway import answers, failures
from autellix.services.gateway.submission import read_body

ANSWERS: Decoder[SessionAnswer | TableAnswer] = Decoder(SessionAnswer | TableAnswer)
BODY_BYTES_MAX = 65_536


class NewProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/programs`."""

    name: str = ""
    agent: str = ""
    ttl_s: Annotated[float, Meta(gt=0)] | None = None


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /programs/release`."""

    program_id: Annotated[str, Meta(min_length=1)]


def program_routes(bus: Bus, patience_s: float) -> list[Route]:
    """Return the routes; a request that no service answers within `patience_s` seconds is answered with 503."""
    programs = Programs(bus, patience_s)
    one = "/v1/programs/{program_id}"
    return [
        Route("/v1/programs", programs.start, methods=["POST"]),
        Route("/v1/programs", programs.list, methods=["GET"]),
        Route(one, programs.get, methods=["GET"]),
        Route(one, programs.end, methods=["DELETE"]),
        Route("/programs/release", programs.release, methods=["POST"]),
    ]


class Programs:
    """The endpoints."""

    def __init__(self, bus: Bus, patience_s: float) -> None:
        self._bus = bus
        self._patience_s = patience_s

    async def start(self, request: Request) -> Response:
        """Begin a program."""
        asked = await _body(request, NewProgram)
        ttl_ms = None if asked.ttl_s is None else asked.ttl_s * 1000
        message = StartSession(name=asked.name, agent=asked.agent, ttl_ms=ttl_ms)
        answer = await self._ask(subjects.SESSIONS_START, message)
        if not isinstance(answer, SessionStarted):
            return _failure(answer)
        content = {"id": answer.program_id, "object": "program", "name": asked.name, "ttl_s": answer.ttl_ms / 1000}
        headers = {"Location": f"/v1/programs/{answer.program_id}", "X-Autellix-Program-Id": answer.program_id}
        return answers.as_json(content, headers, status=HTTPStatus.CREATED)

    async def list(self, request: Request) -> Response:
        """Return the process table."""
        state = request.query_params.get("state", "all")
        if state not in ("all", "running"):
            raise invalid("state must be 'all' or 'running'.", param="state")
        answer = await self._ask(subjects.PROGRAMS_LIST, ListPrograms(include_ended=state == "all"))
        if not isinstance(answer, ProgramList):
            return _failure(answer)
        return answers.as_json({"object": "list", "data": [_shown(each) for each in answer.programs]}, {})

    async def get(self, request: Request) -> Response:
        """Return one program."""
        answer = await self._ask(subjects.PROGRAMS_GET, GetProgram(program_id=_named(request)))
        return answers.as_json(_shown(answer), {}) if isinstance(answer, ProgramRecord) else _failure(answer)

    async def end(self, request: Request) -> Response:
        """End a program; to end one that is over, or never was, is no error."""
        answer = await self._ask(subjects.SESSIONS_END, EndSession(program_id=_named(request)))
        return Response(status_code=HTTPStatus.NO_CONTENT) if isinstance(answer, SessionEnded) else _failure(answer)

    async def release(self, request: Request) -> Response:
        """End a program."""
        program_id = ProgramId((await _body(request, Release)).program_id)
        answer = await self._ask(subjects.SESSIONS_END, EndSession(program_id=program_id))
        if not isinstance(answer, SessionEnded):
            return _failure(answer)
        return answers.as_json({"program_id": program_id, "status": "released"}, {})

    async def _ask(self, subject: str, message: Message) -> Any:
        """Return a service's answer, or the failure to get one."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        inbox = self._bus.new_inbox()

        async def take(delivery: Delivery) -> None:
            if delivery.data and not answered.done():  # an empty message is NATS's way to say that nobody listens
                answered.set_result(delivery.data)

        subscription = await self._bus.subscribe(inbox, take)
        try:
            await self._bus.publish(subject, encode(message), reply=inbox)
            async with asyncio.timeout(self._patience_s):
                return ANSWERS.decode(await answered)
        except TimeoutError:
            return failures.not_confirmed(self._patience_s)
        except BusDownError:
            return failures.BUS_DOWN
        except MalformedMessageError:
            return failures.BAD_FRAME
        finally:
            await subscription.unsubscribe()


def _failure(answer: Any) -> Response:
    """Return the HTTP error for an answer that is none of those asked for."""
    return answers.failure(answer if isinstance(answer, Failed) else failures.BAD_FRAME, {})


def _named(request: Request) -> ProgramId:
    return ProgramId(request.path_params["program_id"])


def _shown(record: ProgramRecord) -> dict[str, Any]:
    """Return a program as the API shows it."""
    fields = msgspec.to_builtins(record)
    del fields["type"]
    return {"id": fields.pop("program_id"), "object": "program", **fields}


async def _body(request: Request, kind: type[Any]) -> Any:
    """Return a request's body; an empty one has no fields.

    Raises:
        InvalidRequestError: 400 for one that is not what was asked for.
    """
    body = await read_body(request, BODY_BYTES_MAX)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(str(error), code="invalid_body") from error
