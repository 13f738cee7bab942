"""What clients ask of durable calls: to take one in, its result, to cancel it."""

import contextlib
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import nats.errors
import structlog

from autellix.schemas.codec import MalformedMessageError
from autellix.schemas.ids import CALL_ID_BEGIN
from autellix.schemas.messages import CancelCalls, DurableCall, Failed, GetResult
from autellix.services.bus import Delivery
from autellix.services.core import Listen, Reply
from autellix.services.durable_calls.attempts import Attempts
from autellix.services.durable_calls.core import (
    CANCELLED,
    FULL,
    NOT_KEPT,
    TOO_LARGE,
    DurableCalls,
    Job,
    Record,
    Tell,
    accepted,
    failed,
    key_of,
)
from autellix.services.durable_calls.results import Results
from autellix.services.durable_calls.store import TROUBLE, ConflictError, Store
from autellix.services.runner import reply_to

log = structlog.get_logger()


class Intake:
    """Answers each request once JetStream has done what it needs."""

    def __init__(
        self, store: Store, core: DurableCalls, results: Results, attempts: Attempts, now_ms: Callable[[], float]
    ) -> None:
        self._store = store
        self._core = core
        self._results = results
        self._attempts = attempts
        self._now_ms = now_ms

    async def handle(self, listen: Listen, delivery: Delivery) -> None:
        """Take in one message."""
        reply = reply_to(delivery)
        try:
            message = listen.decoder.decode(delivery.data)
        except MalformedMessageError as error:
            log.warning("malformed message", subject=delivery.subject, error=str(error))
            if reply and listen.queue:
                malformed = failed(400, "malformed", str(error)[:1000])
                await self._results.say(reply.subject, malformed, as_json=reply.as_json)
            return
        match message:
            case DurableCall():
                await self._answered(Reply(message.reply_to, message.reply_json), self._arrived(message))
            case GetResult() if reply:
                await self._answered(reply, self._asked(message, reply))
            case CancelCalls() if reply and message.call_id and not message.call_id.startswith(CALL_ID_BEGIN):
                await self._answered(None, self._cancel(key_of(reply.tenant, message.call_id)))

    async def _answered(self, reply: Reply | None, work: Coroutine[Any, Any, None]) -> None:
        """Do what is asked; who asked hears of what hinders it."""
        failure = NOT_KEPT
        try:
            await work
        except nats.errors.MaxPayloadError:
            failure = TOO_LARGE
        except TROUBLE as error:
            log.warning("not kept", error=repr(error))
            self._store.failed(error)
        except Exception:
            log.exception("request failed")
        else:
            return
        if reply:
            await self._results.say(reply.subject, failure, as_json=reply.as_json)

    async def _arrived(self, call: DurableCall) -> None:
        """Keep a call, and only then tell its client that it is accepted; or tell its result."""
        key = key_of(call.tenant, call.request.id or "")
        while True:
            known = await self._store.read(key)
            step = self._core.arrived(call, known.record, self._now_ms(), secrets.token_hex(16))
            if isinstance(step, Failed):
                return await self._say(call, step)
            if isinstance(step, Tell):
                await self._say(call, accepted(step.record, call.request))
                return await self._say(call, step.record.result)
            if known.record is None and not await self._store.has_room():
                return await self._say(call, FULL)
            with contextlib.suppress(ConflictError):  # then somebody else was faster, and what they wrote is read
                revision = await self._store.write(key, step.record, known.revision)
                return await self._enqueue(call, step.record, key, revision)

    async def _enqueue(self, call: DurableCall, record: Record, key: str, revision: int) -> None:
        """Queue a call whose record is written, and tell its client."""
        if record.queued:
            return await self._say(call, accepted(record, call.request))
        try:
            await self._store.enqueue(Job(nonce=record.nonce, call=call))
        except TROUBLE:
            with contextlib.suppress(*TROUBLE):
                await self._store.forget(key, revision)
            raise
        await self._say(call, accepted(record, call.request))
        with contextlib.suppress(ConflictError, *TROUBLE):  # who wrote it does the same, or has its result
            await self._store.write(key, msgspec.structs.replace(record, queued=True), revision)
        return None

    async def _say(self, call: DurableCall, message: Any) -> None:
        await self._results.say(call.reply_to, message, as_json=call.reply_json)

    async def _asked(self, request: GetResult, reply: Reply) -> None:
        known = await self._store.read(key_of(reply.tenant, request.id))
        shown = self._core.shown(known.record, self._now_ms())
        await self._results.say(reply.subject, shown, as_json=reply.as_json)

    async def _cancel(self, key: str) -> None:
        """End a call that has no result yet; every instance hears of it, and one of them says so."""
        record = (await self._store.read(key)).record
        if record and not record.result:
            await self._results.end(key, record.nonce, CANCELLED)
        self._attempts.cancel(key)
