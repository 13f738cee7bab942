"""Our NATS subject, by the client library: programs have sessions, calls name their threads and parents."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import msgspec

from autellix.client.bench.targets.events import Completion, Event
from autellix.client.bench.targets.http import completion_body
from autellix.client.bench.targets.target import Answered, Link, TargetError
from autellix.client.bench.targets.words import CODECS, Prompts
from autellix.client.call import Patience, submitted
from autellix.client.connection import Connection, shared, url_or_default
from autellix.client.program import Program
from autellix.client.queries import first_model
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.requests import SubmitCall

COMPLETIONS = "/v1/completions"
DAY_S = 86_400.0
PATIENT = Patience(first_frame_s=DAY_S, silence_s=DAY_S)
"""A slow system is measured as slow."""


class NatsTarget:
    """An Autellix over NATS.

    Args:
        url: Of the NATS server; else `AUTELLIX_NATS_URL`, else the local one.
        model: What to ask for; else the first model of the first engine.
        prompts: `text`: for models that are to get no token ids.
    """

    def __init__(self, url: str | None = None, *, model: str | None = None, prompts: Prompts = "tokens") -> None:
        self.name = self.url = url_or_default(url)
        self.model = model or ""
        self.codec = CODECS[prompts]()
        self._life = AsyncExitStack()
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection, once entered."""
        if self._connection is None:
            raise RuntimeError("enter the target first")
        return self._connection

    async def __aenter__(self) -> Self:
        """Connect and find the model.

        Raises:
            AutellixError: when there is no server, or no engine is up.
        """
        async with AsyncExitStack() as life:
            self._connection = await life.enter_async_context(shared(self.url))
            self.model = self.model or await first_model(self._connection)
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._life.aclose()

    @asynccontextmanager
    async def program(self, name: str, agent: str) -> AsyncIterator[Link]:
        """Return a link of a program whose session lasts as long as the block."""
        async with Program(name, agent=agent, model=self.model, nats_url=self.url) as program:
            yield NatsLink(self, program.id)


class NatsLink:
    """The calls of one program over NATS."""

    def __init__(self, target: NatsTarget, program_id: ProgramId) -> None:
        self._target = target
        self._program_id = program_id

    async def call(self, prompt: Sequence[int], *, max_tokens: int, thread: str, parents: Sequence[str]) -> Answered:
        """Make one call and return its answer."""
        request = SubmitCall(
            body=completion_body(self._target.model, max_tokens) | self._target.codec.request(prompt),
            api=COMPLETIONS,
            program_id=self._program_id,
            thread_id=ThreadId(thread),
            parents=tuple(CallId(parent) for parent in parents),
        )
        began_s, first_s = time.perf_counter(), None
        parts: list[Any] = []
        async with submitted(self._target.connection, request, PATIENT) as call:
            async for chunk in call.chunks():
                parts += chunk.data
                first_s = first_s or time.perf_counter()
            ended_s = time.perf_counter()
            if call.finished is None or not parts:
                raise TargetError(f"{self._target.name}: the answer is empty")
            account = call.finished.call
        completion = _completion(parts)
        return Answered(
            tokens=self._target.codec.tokens(completion),
            first_token_s=(first_s or ended_s) - began_s,
            total_s=ended_s - began_s,
            prompt_tokens=account.prompt_tokens,
            cached_tokens=account.cached_tokens,
            output_tokens=completion.output_tokens,
            call_id=call.call_id,
        )


def _completion(parts: list[Any]) -> Completion:
    try:
        return Completion(msgspec.convert(parts, list[Event]))
    except msgspec.ValidationError as error:
        raise TargetError(f"an event is not as expected: {error}") from error
