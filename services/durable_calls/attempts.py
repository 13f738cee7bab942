"""The tries that are under way: each is an ordinary call, and ends in a frame, or counts as lost."""

import asyncio
import contextlib
import uuid
from typing import Final, Self

import structlog

from autellix.schemas import subjects, tenants
from autellix.schemas.codec import FRAMES, MalformedMessageError, encode
from autellix.schemas.ids import CallId
from autellix.schemas.messages import Accepted, CancelCalls, Chunk, Failed, Finished, SubmitCall
from autellix.services.bus import Bus, BusDownError, Delivery, PayloadTooLargeError, Subscription
from autellix.services.durable_calls.core import CANCELLED, TOO_LARGE, Result, failed
from autellix.services.durable_calls.reporting import Done
from autellix.services.failures import BAD_FRAME, BUS_DOWN, NO_SESSION_MANAGER

log = structlog.get_logger()

WATCH_S: Final = 0.25
"""How often the bus is looked at."""

BUS_LOST: Final = failed(503, "bus_lost", "The message bus was lost during the call.")
NOT_ACCEPTED: Final = failed(503, "not_accepted", "The call was not accepted in time.")
LOST: Final = failed(503, "attempt_lost", "Nothing was heard of the call for too long.")


class Attempt:
    """One try of one call."""

    def __init__(self, reconnects: int) -> None:
        self.reconnects = reconnects
        """The bus's count when it was submitted: another one now means that its end may be gone."""
        self.call_id: CallId | None = None
        self.accepted = asyncio.Event()
        self.over = False
        """Whether the pipeline has ended it."""
        self._end: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def end(self, result: Result) -> None:
        """Note how it ended, unless it has."""
        self.accepted.set()
        if not self._end.done():
            self._end.set_result(result)

    def take(self, delivery: Delivery) -> None:
        """Take in one frame."""
        try:
            frame = FRAMES.decode(delivery.data)
        except MalformedMessageError:  # an empty one is NATS's way to say that nobody listens
            self.end(BAD_FRAME if delivery.data else NO_SESSION_MANAGER)
            return
        self.call_id = frame.call_id or self.call_id
        self.accepted.set()
        match frame:
            case Finished() | Failed():
                self.over = True
                self.end(frame)
            case Accepted() | Chunk():
                return

    async def ended(self, accept_s: float, within_s: float) -> Result:
        """Return how it ended; not accepted, or without an end for so long, it is lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(accept_s):
                await self.accepted.wait()
        if not self.accepted.is_set():
            return NOT_ACCEPTED
        try:
            async with asyncio.timeout(within_s):
                return await self._end
        except TimeoutError:
            return LOST


class Attempts:
    """The tries of one instance, `async with`; one that is given up is cancelled in the pipeline."""

    def __init__(self, bus: Bus, accept_s: float, done: Done) -> None:
        self._bus = bus
        self._accept_s = accept_s
        self._done = done
        self._prefix = bus.new_inbox()
        self._by_token: dict[str, Attempt] = {}
        self._by_key: dict[str, Attempt] = {}
        self._subscription: Subscription | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Listen for frames."""
        self._subscription = await self._bus.subscribe(f"{self._prefix}.*", self._on_delivery)
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Listen no more."""
        if self._watching:
            self._watching.cancel()
        if self._subscription:
            await self._subscription.unsubscribe()

    async def run(self, key: str, request: SubmitCall, *, tenant: str, trace: str, within_s: float) -> Result:
        """Try a call once, and return how that ended."""
        attempt, token = Attempt(self._bus.reconnects), uuid.uuid4().hex
        self._by_token[token] = self._by_key[key] = attempt
        self._done.tries += 1
        self._done.trying += 1
        try:
            await self._submit(attempt, token, request, tenant, trace)
            return await attempt.ended(self._accept_s, within_s)
        finally:
            self._done.trying -= 1
            del self._by_token[token], self._by_key[key]
            if not attempt.over and attempt.call_id:
                await self._give_up(attempt.call_id, tenant)

    def cancel(self, key: str) -> None:
        """End the try of a call, if it is tried here."""
        if attempt := self._by_key.get(key):
            attempt.end(CANCELLED)

    async def _submit(self, attempt: Attempt, token: str, request: SubmitCall, tenant: str, trace: str) -> None:
        if not self._bus.connected:
            attempt.end(BUS_DOWN)
            return
        subject = tenants.subject_of(tenant, subjects.CALLS_SUBMIT)
        try:
            await self._bus.publish(subject, encode(request), reply=f"{self._prefix}.{token}", trace=trace)
        except PayloadTooLargeError:
            attempt.end(TOO_LARGE)
        except BusDownError:
            attempt.end(BUS_DOWN)

    async def _on_delivery(self, delivery: Delivery) -> None:
        attempt = self._by_token.get(delivery.subject.rpartition(".")[2])
        if attempt:
            attempt.take(delivery)
            return
        with contextlib.suppress(MalformedMessageError):
            frame = FRAMES.decode(delivery.data)
            if isinstance(frame, Accepted):  # too late: it is tried again, or was cancelled
                await self._give_up(frame.call_id, tenants.tenant_of(frame.program_id))

    async def _give_up(self, call_id: CallId, tenant: str) -> None:
        """Cancel a call whose end is of no interest any more; nobody listens for the answer."""
        order, subject = CancelCalls(call_id=call_id), tenants.subject_of(tenant, subjects.CALLS_CANCEL)
        try:
            await self._bus.publish(subject, encode(order), reply=self._bus.new_inbox())
        except BusDownError as error:
            log.warning("not cancelled", call_id=call_id, error=str(error))

    async def _watch(self) -> None:
        """End the tries that lived through a loss of the bus: their ends may have been said meanwhile."""
        while True:
            await asyncio.sleep(WATCH_S)
            for attempt in self._by_token.values():
                if not self._bus.connected or attempt.reconnects != self._bus.reconnects:
                    attempt.end(BUS_LOST)
