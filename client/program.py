"""A program: one run of an agent, from the start of its session to its end."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Self

from autellix.client.answer import Answer
from autellix.client.call import LiveCall, Patience, Stream, submitted
from autellix.client.connection import Connection, shared, url_or_default
from autellix.client.errors import CallFailedError
from autellix.client.queries import first_model
from autellix.client.runs import Run, running
from autellix.client.threads import Threads
from autellix.schemas import subjects
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.requests import (
    EndSession,
    SessionEnded,
    SessionStarted,
    SessionTouched,
    StartSession,
    SubmitCall,
    TouchSession,
)

log = logging.getLogger("autellix")

END_AGAIN_S: Final = (1.0, 3.0)
"""Pauses before a session is ended again: about as long as a dead session manager takes to be replaced."""

CHAT = "/v1/chat/completions"

Messages = Sequence[Mapping[str, Any]]


class Program:
    """One run of an agent: entering starts its session, leaving ends it and cancels what still runs.

    Its calls may be made from any number of asyncio tasks; each task is a thread of the program (see `threads`).

    Args:
        name: A label for people, as `autellix ps` shows it.
        agent: What kind of agent this is: the policy `gittins` learns from those of its kind. Else the system prompt of
            the first call tells.
        model: The model of its calls; else `AUTELLIX_MODEL`, else the first model of the first engine.
        nats_url: The NATS server; else `AUTELLIX_NATS_URL`, else the local one.
        ttl_s: How long after this process dies the program is taken for dead; the services' setting if absent.
        patience: How long to wait for services that say nothing.

    Attributes:
        id: The program id, once entered.
    """

    id: ProgramId

    def __init__(
        self,
        name: str = "",
        *,
        agent: str = "",
        model: str | None = None,
        nats_url: str | None = None,
        ttl_s: float | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.name = name
        self.agent = agent
        self.model = model or os.environ.get("AUTELLIX_MODEL", "")
        self._url = url_or_default(nats_url)
        self._ttl_ms = ttl_s and ttl_s * 1000
        self._patience = patience or Patience()
        self._open: tuple[Connection, Threads] | None = None
        self._life = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect and start the session.

        Raises:
            UnreachableError: when there is no NATS server.
            CallFailedError: when no service answers, or it refuses.
        """
        async with AsyncExitStack() as life:
            connection = await life.enter_async_context(shared(self._url))
            self.model = self.model or await first_model(connection)
            request = StartSession(name=self.name, agent=self.agent, ttl_ms=self._ttl_ms)
            started = await connection.request(subjects.SESSIONS_START, request, SessionStarted)
            self.id = started.program_id
            life.push_async_callback(self._end, connection)
            life.callback(asyncio.create_task(self._keep_alive(connection, started.ttl_ms / 3000)).cancel)
            threads = Threads()
            life.enter_context(running(Run({"X-Autellix-Program-Id": self.id}, threads)))
            self._open = connection, threads
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session, whichever way the block was left."""
        if self._open:
            self._open[1].close()
        self._open = None
        await self._life.aclose()

    async def chat(
        self,
        messages: Messages,
        *,
        parents: Sequence[CallId] | None = None,
        deadline_s: float | None = None,
        durable_id: str | None = None,
        **fields: Any,
    ) -> Answer:
        """Make one chat call and return its answer; cancelling the task that waits cancels the call.

        Args:
            messages: The conversation.
            parents: The calls this one waited for, where the tasks do not show them (see `threads`).
            deadline_s: Time after which the services give the call up with status 504.
            durable_id: Makes the call durable: it goes on when nobody waits for it any more, and the same messages with
                the same id, from another process or program too, get the one answer that it has.
            fields: Any further field of the OpenAI request, as `max_tokens`.

        Raises:
            CallFailedError: when the call is refused or fails.
        """
        body = {"model": self.model, **fields, "messages": list(messages), "stream": False}
        async with self.submitted(body, parents, deadline_s, durable_id=durable_id) as call:
            return await call.answer()

    def stream(
        self,
        messages: Messages,
        *,
        parents: Sequence[CallId] | None = None,
        deadline_s: float | None = None,
        **fields: Any,
    ) -> Stream:
        """Return the answer to a chat call as an iterator over pieces of its text; the first step submits the call.

        The arguments and errors are those of `chat`; leaving the iteration early cancels the call.
        """
        body = {"model": self.model, "stream_options": {"include_usage": True}, **fields}
        return Stream(self.submitted({**body, "messages": list(messages), "stream": True}, parents, deadline_s))

    @asynccontextmanager
    async def submitted(
        self,
        body: dict[str, Any],
        parents: Sequence[CallId] | None = None,
        deadline_s: float | None = None,
        *,
        api: str = CHAT,
        durable_id: str | None = None,
    ) -> AsyncIterator[LiveCall]:
        """Submit a call as the next one of the running task's thread; leaving before its end cancels it.

        Args:
            body: The request, as its API defines it.
            parents: As in `chat`.
            deadline_s: As in `chat`.
            api: The path of the API.
            durable_id: As in `chat`; leaving early does not cancel such a call.

        Raises:
            CallFailedError: when the call is refused.
        """
        if self._open is None:
            raise RuntimeError("a program makes its calls inside its `async with` block")
        connection, threads = self._open
        thread = threads.current()
        request = SubmitCall(
            body=body,
            program_id=self.id,
            thread_id=thread.id,
            parents=thread.parents() if parents is None else tuple(parents),
            api=api,
            deadline_ms=deadline_s and deadline_s * 1000,
            durable=durable_id is not None,
            id=durable_id,
        )
        async with submitted(connection, request, self._patience) as call:
            threads.made(thread, call.call_id)
            yield call
            if durable_id is not None and call.finished:  # only now the call is known that was executed
                threads.made(thread, call.finished.call_id)

    async def _keep_alive(self, connection: Connection, every_s: float) -> None:
        """Tell the services now and then that the program lives, however long its tools and people take."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await connection.request(subjects.SESSIONS_TOUCH, TouchSession(program_id=self.id), SessionTouched)
            except CallFailedError as error:
                log.warning("program %s was not kept alive: %s", self.id, error)

    async def _end(self, connection: Connection) -> None:
        """End the session, again if nobody says that it is; should that fail, the program expires by itself."""
        for pause_s in (*END_AGAIN_S, None):
            try:
                await connection.request(subjects.SESSIONS_END, EndSession(program_id=self.id), SessionEnded)
            except CallFailedError as error:
                if pause_s is not None and error.status >= 500:
                    await asyncio.sleep(pause_s)
                    continue
                log.warning("program %s was not ended: %s", self.id, error)
            return
