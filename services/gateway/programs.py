"""Programs over HTTP: what `autellix.sessions.*` and `autellix.programs.*` are over NATS.

| request | what it does |
|---|---|
| `POST /v1/programs` | begin a program; body: `name`, `agent`, `ttl_s`, each optional |
| `GET /v1/programs` | the process table; `?state=running` leaves out those that are over |
| `GET /v1/programs/{id}` | one program |
| `DELETE /v1/programs/{id}` | end it and cancel what it still runs |
| `POST /programs/release` | the same, as ThunderAgent's clients say it: `{"program_id": ...}` |

A program that its client named, in any of the ways of `schemas/identity.py`, may be called by that name; the `name` of
one that was begun here is a label. An agent that says when it is over frees what the engines keep for it; without a
word it expires some time later. Where there are tenants, one's programs are those that it sees.
"""

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from autellix.schemas import subjects
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import (
    EndSession,
    Failed,
    GetProgram,
    ListPrograms,
    ProgramList,
    ProgramRecord,
    SessionEnded,
    SessionStarted,
    StartSession,
)
from autellix.schemas.openai import invalid
from autellix.services.gateway import answers, failures
from autellix.services.gateway.asking import Services
from autellix.services.gateway.door import tenant_of
from autellix.services.gateway.submission import read_body

BODY_BYTES_MAX = 65_536


class NewProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/programs`."""

    name: str = ""
    agent: str = ""
    ttl_s: Annotated[float, Meta(gt=0)] | None = None


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /programs/release`."""

    program_id: Annotated[str, Meta(min_length=1)]


def program_routes(services: Services) -> list[Route]:
    """Return the routes; a request that no service answers is answered with 503."""
    programs = Programs(services)
    one = "/v1/programs/{program_id:path}"
    return [
        Route("/v1/programs", programs.start, methods=["POST"]),
        Route("/v1/programs", programs.list, methods=["GET"]),
        Route(one, programs.get, methods=["GET"]),
        Route(one, programs.end, methods=["DELETE"]),
        Route("/programs/release", programs.release, methods=["POST"]),
    ]


class Programs:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._ask = services.ask

    async def start(self, request: Request) -> Response:
        """Begin a program."""
        asked = await _body(request, NewProgram)
        ttl_ms = None if asked.ttl_s is None else asked.ttl_s * 1000
        message = StartSession(name=asked.name, agent=asked.agent, ttl_ms=ttl_ms)
        answer = await self._ask(subjects.SESSIONS_START, message, tenant_of(request))
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
        asked = ListPrograms(include_ended=state == "all")
        answer = await self._ask(subjects.PROGRAMS_LIST, asked, tenant_of(request))
        if not isinstance(answer, ProgramList):
            return _failure(answer)
        return answers.as_json({"object": "list", "data": [_shown(each) for each in answer.programs]}, {})

    async def get(self, request: Request) -> Response:
        """Return one program."""
        answer = await self._ask(subjects.PROGRAMS_GET, GetProgram(program_id=_named(request)), tenant_of(request))
        return answers.as_json(_shown(answer), {}) if isinstance(answer, ProgramRecord) else _failure(answer)

    async def end(self, request: Request) -> Response:
        """End a program; to end one that is over, or never was, is no error."""
        answer = await self._ask(subjects.SESSIONS_END, EndSession(program_id=_named(request)), tenant_of(request))
        return Response(status_code=HTTPStatus.NO_CONTENT) if isinstance(answer, SessionEnded) else _failure(answer)

    async def release(self, request: Request) -> Response:
        """End a program."""
        program_id = ProgramId((await _body(request, Release)).program_id.strip())
        answer = await self._ask(subjects.SESSIONS_END, EndSession(program_id=program_id), tenant_of(request))
        if not isinstance(answer, SessionEnded):
            return _failure(answer)
        return answers.as_json({"program_id": program_id, "status": "released"}, {})


def _failure(answer: Any) -> Response:
    """Return the HTTP error for an answer that is none of those asked for."""
    return answers.failure(answer if isinstance(answer, Failed) else failures.BAD_FRAME, {})


def _named(request: Request) -> ProgramId:
    return ProgramId(request.path_params["program_id"].strip())  # as calls are


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
    return fields_of(await read_body(request, BODY_BYTES_MAX), kind)


def fields_of(body: bytes, kind: type[Any]) -> Any:
    """Return the fields in a body; an empty one has none.

    Raises:
        InvalidRequestError: 400 for one that is not what was asked for.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise invalid(str(error), code="invalid_body") from error
