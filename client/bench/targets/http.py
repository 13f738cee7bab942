"""Any OpenAI-compatible server: streamed completions over HTTP.

The client must not take the server's time: parts of an answer are only collected while they come, and there are as many
connections as calls. It is patient: nothing has a time-out, so a slow system is measured as slow and never relieved.
It uses aiohttp, where the rest of the client has httpx: with hundreds of connections httpx spends more time on choosing
one than on all else, and the server on the same machine is measured as slow.
"""

import io
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, Self

import aiohttp
import msgspec

from autellix.client.bench.targets.events import MARK, BrokenStreamError, Completion, error_text, events
from autellix.client.bench.targets.target import Answered, Link, TargetError
from autellix.client.bench.targets.words import CODECS, Prompts

Priority = Literal["none", "calls"]
CALL_ID_HEADER = "x-autellix-call-id"
IDLE_S = 2.0
"""How long a connection is kept for the next call: shorter than servers do, so that none is closed under a request."""


class Received(NamedTuple):
    """A whole answer as it came; seconds after the request was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    first_token_s: float
    total_s: float


class OpenAITarget:
    """An OpenAI-compatible server.

    Args:
        base_url: With or without `/v1` at its end.
        model: What to ask for; else the first model that the server lists.
        api_key: Sent as bearer token.
        priority: `calls`: each call says how many its program made before it, for vLLM's priority scheduling.
        prompts: `text`: for servers that take no token ids.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        priority: Priority = "none",
        prompts: Prompts = "tokens",
    ) -> None:
        self.name = base_url
        self.base_url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1"
        self.model = model or ""
        self.sends_priority = priority == "calls"
        self.codec = CODECS[prompts]()
        key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._sent_headers = {"Accept-Encoding": "identity", "Content-Type": "application/json", **key}
        self.http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        """Find the model.

        Raises:
            TargetError: when there is no server, or it serves no model.
        """
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            headers=self._sent_headers,
        )
        try:
            self.model = self.model or await self._first_model()
        except BaseException:
            await self.http.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.http.close()

    async def _first_model(self) -> str:
        url = f"{self.base_url}/models"
        try:
            async with self.http.get(url, raise_for_status=True, allow_redirects=False) as answer:
                return str((await answer.json(content_type=None))["data"][0]["id"])
        except aiohttp.ClientError as error:
            raise TargetError(f"{url}: {str(error) or type(error).__name__}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise TargetError(f"{url} lists no model") from error

    @asynccontextmanager
    async def program(self, name: str, agent: str) -> AsyncIterator[Link]:  # noqa: ARG002 - this server knows none
        """Return a link; a plain server knows calls only."""
        yield HttpLink(self)


class HttpLink:
    """One program's calls over HTTP."""

    def __init__(self, target: OpenAITarget) -> None:
        self._target = target
        self._calls = 0

    async def call(self, prompt: Sequence[int], *, max_tokens: int, thread: str, parents: Sequence[str]) -> Answered:  # noqa: ARG002 - HTTP carries no parents
        """Make one call and return its answer."""
        body = msgspec.json.encode(self._body(prompt, max_tokens))
        self._calls += 1
        try:
            received = await self._exchange(body, self._headers(thread))
            if received.status != HTTPStatus.OK:
                raise TargetError(f"{self._target.name}: {_reason(received.body)} (status {received.status})")
            return self._answered(received, len(prompt))
        except aiohttp.ClientError as error:
            raise TargetError(f"{self._target.name}: {str(error) or type(error).__name__}") from error
        except BrokenStreamError as error:
            raise TargetError(f"{self._target.name}: {error}") from error

    def _headers(self, thread: str) -> Mapping[str, str]:  # noqa: ARG002 - for those that know programs
        return {}

    def _hear(self, headers: Mapping[str, str]) -> None:
        """Take in what the head of an answer says of the program."""

    def _body(self, prompt: Sequence[int], max_tokens: int) -> dict[str, Any]:
        body = completion_body(self._target.model, max_tokens) | self._target.codec.request(prompt)
        return body | ({"priority": self._calls} if self._target.sends_priority else {})

    async def _exchange(self, body: bytes, headers: Mapping[str, str]) -> Received:
        parts: list[bytes] = []
        first_s = None
        url = f"{self._target.base_url}/completions"
        began_s = time.perf_counter()
        async with self._target.http.post(url, data=io.BytesIO(body), headers=headers, allow_redirects=False) as answer:
            self._hear(answer.headers)
            async for part in answer.content.iter_any():
                parts.append(part)
                if first_s is None and MARK in part:  # what is no event is a sign of life only
                    first_s = time.perf_counter()
        ended_s = time.perf_counter()
        return Received(
            answer.status, answer.headers, b"".join(parts), (first_s or ended_s) - began_s, ended_s - began_s
        )

    def _answered(self, received: Received, asked_tokens: int) -> Answered:
        completion = Completion(events(received.body))
        if not completion.output_tokens:
            raise BrokenStreamError("the answer is empty")
        return Answered(
            tokens=self._target.codec.tokens(completion),
            first_token_s=received.first_token_s,
            total_s=received.total_s,
            prompt_tokens=completion.usage.prompt_tokens if completion.usage else asked_tokens,
            cached_tokens=completion.cached_tokens,
            output_tokens=completion.output_tokens,
            call_id=received.headers.get(CALL_ID_HEADER, ""),
        )


def completion_body(model: str, max_tokens: int) -> dict[str, Any]:
    """Return the fields of a completion that is streamed and exactly so long; what else it has is the prompt."""
    return {
        "model": model,
        "max_tokens": max_tokens,
        "min_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _reason(body: bytes) -> str:
    """Return what an error answer says."""
    try:
        return error_text(msgspec.json.decode(body)["error"])
    except (msgspec.MsgspecError, LookupError, TypeError):
        return body[:200].decode(errors="replace") or "no reason given"
