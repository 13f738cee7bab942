"""The gateway's end of the calls it submits: one inbox, and in it a stream of parts for each call.

Rules:
* A gateway subscribes once, to `<inbox>.*`; each call has a token of its own behind the inbox. The subscription's
  handler never waits for a client: it puts frames into a bounded queue.
* A stream ends exactly once: with the call's own last frame, or with a failure found here (frames lost or unreadable,
  a reader too slow, the bus lost, the gateway stopping).
* A call whose reader is gone is cancelled, at the latest when it is accepted: an `accepted` that nobody waits for is
  reason enough. Only a durable call goes on: its client may ask for the result later.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Final, Self

import structlog

from autellix.schemas import subjects, tenants
from autellix.schemas.codec import FRAMES, MalformedMessageError, encode
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import Accepted, CancelCalls, Chunk, EndSession, Failed, Finished, Frame
from autellix.schemas.stream import FrameOrder
from autellix.services.bus import Bus, BusDownError, Delivery, PayloadTooLargeError, Subscription
from autellix.services.gateway import failures
from autellix.services.publishing import ids_of

log = structlog.get_logger()

Part = Chunk | Finished | Failed
"""What a reader sees of a call."""

PARTS_MAX: Final = 1024
"""Parts kept for a reader that is behind."""
CALLS_MAX: Final = 8192
"""Calls that one gateway holds open."""
WATCH_S: Final = 0.25
"""How often the bus is looked at."""


class CallStream:
    """The parts of one call's answer, in order, for one reader."""

    def __init__(self, *, reconnects: int = 0) -> None:
        self.reconnects = reconnects
        """The bus's count when the call was submitted: another one now means that parts may be gone."""
        self.call_id: CallId | None = None
        self.program_id: ProgramId | None = None
        self.over = False
        """Whether the call itself has ended or was cancelled."""
        self.durable = False
        """Whether it goes on until it has a result, whoever leaves."""
        self.replayed = False
        """Whether its result was there already."""
        self.end: Finished | Failed | None = None
        """The last part, once it is known."""
        self._order = FrameOrder()
        self._parts: asyncio.Queue[Part] = asyncio.Queue()
        self._answered = asyncio.Event()

    @property
    def broken(self) -> bool:
        """Whether the reader has got its last part although the call runs on."""
        return self.end is not None and not self.over

    def put(self, frame: Frame) -> None:
        """Take in one frame of the call."""
        self.call_id = self.call_id or frame.call_id
        self._answered.set()
        match frame:
            case Accepted():
                self.program_id = frame.program_id
                self.durable, self.replayed = frame.durable, frame.replayed
            case Chunk() if self._parts.qsize() >= PARTS_MAX:
                self.fail(failures.slow_reader(PARTS_MAX))
            case _:
                if isinstance(frame, Finished):  # a durable call's program is known late
                    self.program_id = self.program_id or frame.call.program_id
                part = self._append(frame)
                self.over = self.over or (part is frame and part is self.end)

    def fail(self, failure: Failed) -> None:
        """End the stream, unless it has ended, with a failure that the call itself does not know of."""
        self._answered.set()
        self._append(failure)

    def _append(self, frame: Part) -> Part | None:
        part = self._order.admit(frame)
        if part is None or isinstance(part, Accepted):
            return None
        if isinstance(part, Finished | Failed):
            self.end = part
        self._parts.put_nowait(part)
        return part

    async def accepted(self, patience_s: float) -> None:
        """Return when the pipeline has answered anything; after `patience_s` seconds the stream ends in a failure."""
        try:
            async with asyncio.timeout(patience_s):
                await self._answered.wait()
        except TimeoutError:
            self.fail(failures.not_accepted(patience_s))

    async def next(self, patience_s: float | None = None) -> Part | None:
        """Return the next part, or None after `patience_s` seconds of silence."""
        try:
            async with asyncio.timeout(patience_s):
                return await self._parts.get()
        except TimeoutError:
            return None


class Inbox:
    """One gateway's subscription and the calls it has open, `async with`."""

    def __init__(self, bus: Bus, *, calls_max: int = CALLS_MAX) -> None:
        self._bus = bus
        self._calls_max = calls_max
        self._prefix = bus.new_inbox()
        self._streams: dict[str, CallStream] = {}
        self._subscription: Subscription | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Subscribe; on return the bus knows."""
        self._subscription = await self._bus.subscribe(f"{self._prefix}.*", self._on_delivery)
        await self._bus.flush()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what is still open and unsubscribe."""
        self.fail_all(failures.STOPPING)
        if self._watching:
            self._watching.cancel()
        if self._subscription:
            await self._subscription.unsubscribe()

    @property
    def open_calls(self) -> int:
        """How many calls have a reader."""
        return len(self._streams)

    @contextlib.asynccontextmanager
    async def submit(
        self, payload: bytes, *, trace: str = "", final: bool = False, tenant: str = tenants.NOBODY
    ) -> AsyncIterator[CallStream]:
        """Submit an encoded `SubmitCall` and hand out its stream; to leave before the call's end is to cancel it.

        Args:
            payload: The call.
            trace: The `traceparent` of the span that it is part of.
            final: Whether its program is over with it.
            tenant: Whose it is.
        """
        stream, token = CallStream(reconnects=self._bus.reconnects), uuid.uuid4().hex
        if self.open_calls >= self._calls_max:
            stream.fail(failures.overloaded(self._calls_max))
            yield stream
            return
        self._streams[token] = stream
        try:
            await self._send(tenants.subject_of(tenant, subjects.CALLS_SUBMIT), payload, token, stream, trace)
            yield stream
        finally:
            del self._streams[token]
            await self._cancel(stream)
            if final and stream.program_id and not _comes_again(stream.end) and (stream.over or not stream.durable):
                await self._order(subjects.SESSIONS_END, EndSession(program_id=stream.program_id))

    def fail_all(self, failure: Failed) -> None:
        """End every open stream with `failure`."""
        for stream in self._streams.values():
            stream.fail(failure)

    async def _send(self, subject: str, payload: bytes, token: str, stream: CallStream, trace: str) -> None:
        """Publish a call; what hinders that is the stream's end."""
        if not self._bus.connected:
            stream.fail(failures.BUS_DOWN)
            return
        try:
            await self._bus.publish(subject, payload, reply=f"{self._prefix}.{token}", trace=trace)
        except PayloadTooLargeError:
            stream.fail(failures.too_large(self._bus.max_payload))
        except BusDownError:
            stream.fail(failures.BUS_DOWN)

    async def _on_delivery(self, delivery: Delivery) -> None:
        stream = self._streams.get(delivery.subject.rpartition(".")[2])
        frame = _frame(delivery)
        if stream is None:
            if isinstance(frame, Accepted) and not frame.durable:
                await self._publish_cancel(frame.call_id)
            return
        if frame:
            stream.put(frame)
        else:  # an empty message is NATS's way to say that nobody is subscribed to where the call was sent
            stream.fail(failures.BAD_FRAME if delivery.data else failures.NO_SESSION_MANAGER)
        if stream.broken:
            await self._cancel(stream)

    async def _cancel(self, stream: CallStream) -> None:
        """Cancel the call of a stream, once, unless it is over, not accepted yet, or durable."""
        if stream.call_id and not stream.over and not stream.durable:
            stream.over = True
            await self._publish_cancel(stream.call_id)

    async def _publish_cancel(self, call_id: CallId) -> None:
        await self._order(subjects.CALLS_CANCEL, CancelCalls(call_id=call_id))

    async def _order(self, subject: str, order: CancelCalls | EndSession) -> None:
        """Publish an order whose answer is of no interest: nobody listens on its reply subject."""
        try:
            await self._bus.publish(subject, encode(order), reply=self._bus.new_inbox())
        except BusDownError as error:
            log.warning("not ordered", subject=subject, error=str(error), **ids_of(order))

    async def _watch(self) -> None:
        """End the streams that lived through a loss of the bus: what was on its way is gone and nobody would tell."""
        while True:
            await asyncio.sleep(WATCH_S)
            for stream in self._streams.values():
                if not self._bus.connected or stream.reconnects != self._bus.reconnects:
                    stream.fail(failures.BUS_LOST)


def _comes_again(end: Finished | Failed | None) -> bool:
    """Tell whether a call failed in a way that clients answer with the same call."""
    return isinstance(end, Failed) and (end.retry_safe or end.status in (429, 503))


def _frame(delivery: Delivery) -> Frame | None:
    """Return the frame in a delivery, None when there is none."""
    try:
        return FRAMES.decode(delivery.data)
    except MalformedMessageError as error:
        if delivery.data:
            log.warning("unreadable frame", error=str(error))
        return None
