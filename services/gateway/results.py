"""`GET /v1/calls/{id}`: what became of a durable call.

It is answered with what the call itself was answered with, an error included; with 202 while it has no result, and with
404 if there is no such call, or its result has expired.
"""

import math
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from autellix.schemas import subjects
from autellix.schemas.messages import CallResult, Failed, Finished, GetResult
from autellix.services.gateway import answers, failures
from autellix.services.gateway.asking import Services
from autellix.services.gateway.door import tenant_of

POLL_S = 1.0
"""When a client that asks too early is told to come again."""


def result_routes(services: Services) -> list[Route]:
    """Return the route; a request that no service answers is answered with 503."""
    return [Route("/v1/calls/{call_id:path}", Results(services).get, methods=["GET"])]


class Results:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._ask = services.ask

    async def get(self, request: Request) -> Response:
        """Return a call's answer."""
        asked = GetResult(id=request.path_params["call_id"])
        answer = await self._ask(subjects.CALLS_RESULT, asked, tenant_of(request))
        if not isinstance(answer, CallResult):
            return answers.failure(answer if isinstance(answer, Failed) else failures.BAD_FRAME, {})
        match answer.result:
            case Finished() as end:
                names = {"X-Autellix-Call-Id": end.call_id, "X-Autellix-Program-Id": end.call.program_id}
                return answers.as_json(end.response, names)
            case Failed() as end:
                return answers.failure(end, {"X-Autellix-Call-Id": end.call_id} if end.call_id else {})
            case None:
                pending = {"id": answer.id, "object": "call", "status": "pending", "waited_ms": answer.waited_ms}
                retry = {"Retry-After": str(math.ceil(POLL_S))}
                return answers.as_json(pending, retry, status=HTTPStatus.ACCEPTED)
