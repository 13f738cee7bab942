"""One call in flight: submitted, accepted, streamed, ended; cancelled when its reader leaves early."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

from autellix.client import tracing
from autellix.client.answer import Answer, Assembly
from autellix.client.connection import Connection
from autellix.client.errors import CallFailedError, failure
from autellix.client.inbox import Inbox
from autellix.schemas import subjects
from autellix.schemas.frames import Accepted, Chunk, Finished
from autellix.schemas.ids import CallId
from autellix.schemas.messages import Frame
from autellix.schemas.requests import CancelCalls, SubmitCall

SILENCE = "silence"
CANCEL_S = 1.0
"""How long a cancelled call may take to learn its own id."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a service that says nothing: the bounds that keep a call from hanging for ever."""

    first_frame_s: float = 10.0
    """Until the pipeline has accepted the call."""
    silence_s: float = 600.0
    """Between two frames; a call in a long queue, and one that is not streamed, are silent for long."""


class LiveCall:
    """A call and the frames of its answer."""

    def __init__(self, connection: Connection, inbox: Inbox, patience: Patience) -> None:
        self._connection = connection
        self._inbox = inbox
        self._patience = patience
        self._accepted: Accepted | None = None
        self.finished: Finished | None = None

    @property
    def call_id(self) -> CallId:
        """The id under which the pipeline accepted the call."""
        if self._accepted is None:
            raise RuntimeError("the call is not accepted yet")
        return self._accepted.call_id

    async def accepted(self, within_s: float) -> None:
        """Return once the call is in the pipeline."""
        try:
            frame = await self._next(within_s)
        except CallFailedError as error:
            if error.error.code == SILENCE:
                raise failure(503, f"The call was not accepted within {within_s:g} s.", "not_accepted") from error
            raise
        if not isinstance(frame, Accepted):
            raise failure(502, f"The answer began with a {type(frame).__name__}.", "malformed")
        self._accepted = frame

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Yield the chunks until the call has finished."""
        while not self.finished:
            frame = await self._next(self._patience.silence_s)
            if isinstance(frame, Chunk):
                yield frame
            elif isinstance(frame, Finished):
                self.finished = frame

    async def answer(self) -> Answer:
        """Return the whole answer of a call that is not streamed."""
        assembly = Assembly()
        async for chunk in self.chunks():
            for part in chunk.data:
                assembly.add(part)
        return self.answer_of(assembly)

    def answer_of(self, assembly: Assembly) -> Answer:
        """Return the answer of a finished call, given the chunks it had."""
        if self.finished is None:
            raise RuntimeError("the answer is complete only when the stream has ended")
        return Answer(self.finished.response or assembly.response(), self.finished.call)

    async def _next(self, within_s: float) -> Frame:
        try:
            async with asyncio.timeout(within_s):
                return await self._inbox.next()
        except TimeoutError as error:
            raise failure(504, f"No sign of the call within {within_s:g} s.", SILENCE) from error

    async def abort(self) -> None:
        """Have the engine give the call up, and read on: its last frame says that it was cancelled."""
        order = CancelCalls(call_id=self.call_id)
        await self._connection.publish(subjects.CALLS_CANCEL, order, reply=self._connection.nowhere())

    async def cancel(self) -> None:
        """Have the engine give the call up; nobody reads its frames any more."""
        with suppress(CallFailedError):  # the call is over, or the bus is away: nothing is left to be cancelled
            if self._accepted is None:
                await self.accepted(CANCEL_S)
            order = CancelCalls(call_id=self.call_id)
            await self._connection.publish(subjects.CALLS_CANCEL, order, reply=self._inbox.subject)


@asynccontextmanager
async def submitted(connection: Connection, request: SubmitCall, patience: Patience) -> AsyncIterator[LiveCall]:
    """Submit a call and wait for it to be accepted; leaving before its end cancels it, unless it is durable.

    Raises:
        CallFailedError: when it is refused, or nothing is heard of it.
    """
    with connection.inbox() as inbox:
        call = LiveCall(connection, inbox, patience)
        await connection.publish(subjects.CALLS_SUBMIT, request, reply=inbox.subject, trace=tracing.current())
        try:
            await call.accepted(patience.first_frame_s)
            yield call
        finally:
            if not (inbox.over or request.durable):
                await call.cancel()


class Stream:
    """The answer to a call as it is written: iterate over its pieces of text, then read `answer`."""

    def __init__(self, call: AbstractAsyncContextManager[LiveCall]) -> None:
        self._call = call
        self._answer: Answer | None = None

    @property
    def answer(self) -> Answer:
        """The whole answer, once the iteration is over."""
        if self._answer is None:
            raise RuntimeError("the answer is complete only when the stream has ended")
        return self._answer

    async def __aiter__(self) -> AsyncGenerator[str, None]:
        assembly = Assembly()
        async with self._call as call:
            async for chunk in call.chunks():
                for part in chunk.data:
                    if piece := assembly.add(part):
                        yield piece
            self._answer = call.answer_of(assembly)
