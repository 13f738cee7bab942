"""The decisions about durable calls.

Rules:
* A call is its tenant and the id that its client gave it. The same id with the same API and body is the same call, from
  whichever program; with another body it is refused.
* Its record is written before it is queued, and changes by compare-and-set only; the first result stays.
* Whoever asks while it is pending is noted in the record, so that anybody can tell them, whoever dies meanwhile.
* What was lost or refused for now is tried again, with growing pauses, until `tries_s` after the submission; each call
  is tried at least once. Anything else is a result, failures too.
* A model that nobody knows may be one whose engine starts anew: it is asked for again for a while.
* A deadline counts from the submission.
* A result is forgotten after its time; the id is free then.
"""

import hashlib
from typing import Final, NamedTuple

import msgspec

from autellix.schemas.base import ErrorBody, Message
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import Accepted, CallResult, DurableCall, Failed, Finished, SubmitCall
from autellix.services.config import DurableCallsSettings

WAITING_MAX: Final = 64
"""Inboxes that one pending call may have."""
PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0
MODEL_S: Final = 120.0
"""How long a model may be unknown: longer than an engine takes to start."""
DEADLINE_GRACE_S: Final = 5.0
"""How much later than a call's deadline the pipeline may say that it passed."""
AGAIN: Final = frozenset({429, 502, 503})
"""The statuses of what was refused for now, or lost."""

Result = Finished | Failed


class Waiting(msgspec.Struct, frozen=True):
    """An inbox that is told the result."""

    subject: str
    as_json: bool = False


class Record(Message, tag="durable_record", frozen=True, kw_only=True):
    """What is kept of a call under its key."""

    id: str
    nonce: str
    """Unlike that of an earlier call of the same id, whose result is forgotten."""
    digest: bytes
    """Of what is asked."""
    submitted_at_ms: float
    queued: bool = False
    """It is known to be in the queue, and its client has been told so."""
    waiting: tuple[Waiting, ...] = ()
    result: Result | None = None
    ended_at_ms: float = 0.0


class Job(Message, tag="durable_job", frozen=True, kw_only=True):
    """What is queued of a call."""

    nonce: str
    call: DurableCall

    @property
    def key(self) -> str:
        """Return the key of its record."""
        return key_of(self.call.tenant, self.call.request.id or "")


class Keep(NamedTuple):
    """The record is to be written; unless it is queued already, the call has to be."""

    record: Record


class Tell(NamedTuple):
    """The result is there, and to be told."""

    record: Record


class Try(NamedTuple):
    """The call is to be submitted, and given up after a time."""

    request: SubmitCall
    within_s: float


class Later(NamedTuple):
    """The call is to be tried again after a pause."""

    pause_s: float


def key_of(tenant: str, call_id: str) -> str:
    """Return the key under which a tenant's call is kept; nobody reads an id from it."""
    return hashlib.blake2b(f"{tenant}\0{call_id}".encode(), digest_size=16).hexdigest()


def digest_of(request: SubmitCall) -> bytes:
    """Return what tells two requests apart. An agent that begins anew, as another program, asks the same."""
    asked = msgspec.json.encode([request.api, request.body], order="deterministic")
    return hashlib.blake2b(asked, digest_size=16).digest()


def failed(status: int, code: str, message: str, *, retry_safe: bool = False) -> Failed:
    """Return a failure that this service says."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    retry_after_s = 1.0 if retry_safe else None
    error = ErrorBody(message=message, type=kind, code=code, param="id" if status in (404, 409) else None)
    return Failed(status=status, error=error, retry_safe=retry_safe, retry_after_s=retry_after_s)


NOT_KEPT: Final = failed(503, "durable_not_kept", "Durable calls cannot be kept now.", retry_safe=True)
FULL: Final = failed(503, "durable_full", "There is no room for more durable calls now.", retry_safe=True)
CROWD: Final = failed(429, "too_many_waiting", f"{WAITING_MAX} inboxes wait for this call.", retry_safe=True)
TOO_LARGE: Final = failed(413, "body_too_large", "The call is larger than can be kept.")
ANSWER_TOO_LARGE: Final = failed(500, "answer_not_sent", "The answer is larger than can be kept.")
CANCELLED: Final = failed(499, "cancelled", "The call was cancelled.")
LATE: Final = failed(504, "deadline_exceeded", "The deadline passed before the call had an answer.")
UNKNOWN: Final = failed(404, "call_not_found", "No durable call of this id: never submitted, or expired.")


class DurableCalls:
    """What to do with calls, given what is kept of them."""

    def __init__(self, settings: DurableCallsSettings) -> None:
        self._settings = settings

    def known(self, record: Record | None, now_ms: float) -> Record | None:
        """Return a record, if it is not one of a result whose time is over."""
        if record and record.result and now_ms >= self._until_ms(record):
            return None
        return record

    def arrived(self, call: DurableCall, record: Record | None, now_ms: float, nonce: str) -> Keep | Tell | Failed:
        """Return what to do with a call that is submitted."""
        request, waiting = call.request, Waiting(call.reply_to, call.reply_json)
        record, digest = self.known(record, now_ms), digest_of(request)
        if record is None:
            at_ms = call.arrival_at_ms
            record = Record(id=request.id or "", nonce=nonce, digest=digest, submitted_at_ms=at_ms, waiting=(waiting,))
            return Keep(record)
        if record.digest != digest:
            return failed(409, "idempotency_conflict", "The id stands for a call with another body.")
        if record.result:
            return Tell(record)
        if waiting in record.waiting:
            return Keep(record)
        if len(record.waiting) >= WAITING_MAX:
            return CROWD
        return Keep(msgspec.structs.replace(record, waiting=(*record.waiting, waiting)))

    def delivered(self, job: Job, record: Record | None, now_ms: float) -> Try | Tell | Failed | None:
        """Return what to do with a call that comes from the queue; None: nothing, nobody waits for it any more."""
        if record is None or record.nonce != job.nonce:
            return None
        if record.result:
            return Tell(record)
        left_ms = self._left_ms(job, now_ms)
        if left_ms is None:
            return Try(_ordinary(job, None), self._settings.attempt_s)
        if left_ms <= 0:
            return LATE
        return Try(_ordinary(job, left_ms), min(self._settings.attempt_s, left_ms / 1000 + DEADLINE_GRACE_S))

    def tried(self, job: Job, end: Result, now_ms: float, deliveries: int) -> Result | Later:
        """Return the result that a try brought, or when to try again.

        Args:
            job: The call.
            end: How the try ended.
            now_ms: The time.
            deliveries: How often the call has come from the queue.
        """
        if isinstance(end, Finished):
            return end
        age_s = (now_ms - job.call.arrival_at_ms) / 1000
        unknown_model = end.error.code == "model_not_found" and age_s < MODEL_S
        if not (end.retry_safe or end.status in AGAIN or unknown_model):
            return end
        pause_s = min(max(PAUSE_S * 2 ** min(deliveries - 1, 10), end.retry_after_s or 0), PAUSE_MAX_S)
        left_ms = self._left_ms(job, now_ms)
        if left_ms is not None and left_ms <= 0:
            return LATE
        if age_s + pause_s < self._settings.tries_s:
            return Later(pause_s if left_ms is None else min(pause_s, left_ms / 1000))
        text = f"Tried for {self._settings.tries_s:g} s; the last try: {end.error.message}"
        return failed(503, "tries_over", text)

    def ended(self, record: Record, result: Result, now_ms: float) -> Record:
        """Return a record with its result."""
        return msgspec.structs.replace(record, queued=True, result=result, ended_at_ms=now_ms)

    def shown(self, record: Record | None, now_ms: float) -> CallResult | Failed:
        """Return what a client is told that asks for a call."""
        record = self.known(record, now_ms)
        if record is None:
            return UNKNOWN
        until_ms = record.ended_at_ms if record.result else now_ms
        return CallResult(
            id=record.id,
            submitted_at_ms=record.submitted_at_ms,
            waited_ms=max(0.0, until_ms - record.submitted_at_ms),
            result=record.result,
            kept_until_ms=self._until_ms(record) if record.result else None,
        )

    def _until_ms(self, record: Record) -> float:
        return record.ended_at_ms + self._settings.results_kept_s * 1000

    def _left_ms(self, job: Job, now_ms: float) -> float | None:
        deadline_ms = job.call.request.deadline_ms
        return None if deadline_ms is None else job.call.arrival_at_ms + deadline_ms - now_ms


def accepted(record: Record, request: SubmitCall) -> Accepted:
    """Return what the client of a call hears that is kept."""
    end = record.result
    return Accepted(
        call_id=CallId(record.id),
        program_id=end.call.program_id if isinstance(end, Finished) else request.program_id or ProgramId(""),
        thread_id=end.call.thread_id if isinstance(end, Finished) else request.thread_id or ThreadId(""),
        durable=True,
        replayed=end is not None,
    )


def _ordinary(job: Job, left_ms: float | None) -> SubmitCall:
    """Return a call as it is submitted each time that it is tried."""
    return msgspec.structs.replace(job.call.request, durable=False, id=None, deadline_ms=left_ms)
