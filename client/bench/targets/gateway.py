"""Our HTTP gateway: programs are sessions that this client names, and are ended when they are over."""

import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp

from autellix.client.bench.targets.http import HttpLink, OpenAITarget
from autellix.client.bench.targets.target import Link

log = logging.getLogger("autellix")

PROGRAM_HEADER = "x-autellix-program-id"


class GatewayTarget(OpenAITarget):
    """An Autellix over HTTP. The arguments are those of `OpenAITarget`."""

    @asynccontextmanager
    async def program(self, name: str, agent: str) -> AsyncIterator[Link]:
        """Return a link; the program begins with its first call and ends with the block."""
        link = GatewayLink(self, f"{name}-{secrets.token_hex(8)}", agent)
        try:
            yield link
        finally:
            await link.end()


class GatewayLink(HttpLink):
    """The calls of one program."""

    def __init__(self, target: OpenAITarget, session: str, agent: str) -> None:
        super().__init__(target)
        self._session = session
        self._agent = agent
        self._program_id = ""

    def _headers(self, thread: str) -> Mapping[str, str]:
        return {"X-Session-ID": self._session, "X-Autellix-Agent": self._agent, "X-Autellix-Thread-Id": thread}

    def _hear(self, headers: Mapping[str, str]) -> None:
        """Learn the program's id."""
        self._program_id = headers.get(PROGRAM_HEADER) or self._program_id

    async def end(self) -> None:
        """End the program, if it began; should that fail, it expires by itself."""
        if not self._program_id:
            return
        try:
            url = f"{self._target.base_url}/programs/{self._program_id}"
            async with self._target.http.delete(url, allow_redirects=False) as answer:
                problem = None if answer.status == HTTPStatus.NO_CONTENT else f"status {answer.status}"
        except aiohttp.ClientError as error:
            problem = str(error) or type(error).__name__
        if problem:
            log.warning("program %s was not ended: %s", self._program_id, problem)
