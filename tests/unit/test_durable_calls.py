"""The decisions about durable calls: what is kept, what is tried again, what is told."""

from typing import Any

import msgspec
import pytest

from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId
from autellix.schemas.messages import CallFinished, CallResult, DurableCall, Failed, Finished, SubmitCall
from autellix.services.config import DurableCallsSettings, SessionManagerSettings
from autellix.services.core import Reply
from autellix.services.durable_calls.core import (
    CANCELLED,
    LATE,
    MODEL_S,
    PAUSE_MAX_S,
    UNKNOWN,
    WAITING_MAX,
    DurableCalls,
    Job,
    Keep,
    Later,
    Record,
    Tell,
    Try,
    accepted,
    digest_of,
    key_of,
)
from autellix.services.session_manager.core import SessionManager

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SETTINGS = DurableCallsSettings(tries_s=100.0, attempt_s=50.0, results_kept_s=10.0)
NOW_MS = 1_000_000.0
CALLS = DurableCalls(SETTINGS)
FINISHED = Finished(
    call_id=CallId("call-1"),
    seq=1,
    call=CallFinished(
        call_id=CallId("call-1"),
        program_id=ProgramId("p"),
        thread_id=ThreadId("main"),
        at_ms=NOW_MS,
        arrival_at_ms=NOW_MS,
        engine_id=EngineId("e0"),
    ),
    response={"id": "x"},
)


def call(inbox: str = "_INBOX.1", *, tenant: str = "", **fields: Any) -> DurableCall:
    """Return a call as the session manager hands it on."""
    request = SubmitCall(**{"body": BODY, "durable": True, "id": "mine", **fields})
    return DurableCall(request=request, tenant=tenant, reply_to=inbox, arrival_at_ms=NOW_MS)


def job(**fields: Any) -> Job:
    """Return a call as it comes from the queue."""
    return Job(nonce="n", call=call(**fields))


def kept(inbox: str = "_INBOX.1", **fields: Any) -> Record:
    """Return the record of a call that has come."""
    step = CALLS.arrived(call(inbox, **fields), None, NOW_MS, "n")
    assert isinstance(step, Keep)
    return step.record


def failure(status: int, code: str = "broken", **fields: Any) -> Failed:
    """Return the failure that a try ended in."""
    return Failed(status=status, error=ErrorBody(message="it broke", type="server_error", code=code), **fields)


def test_session_manager_hands_it_on() -> None:
    """It is checked, and no program begins: that is found when the call is tried."""
    sessions = SessionManager(SessionManagerSettings(), new_id=lambda: "id1", secret=b"key")
    request = SubmitCall(body=BODY, durable=True, id="mine", program_id=ProgramId("unknown"))
    (out,) = sessions.handle(request, NOW_MS, Reply("_INBOX.1", as_json=True, trace="t", tenant="acme"))

    assert out.subject == subjects.CALL_DURABLE
    assert out.message == DurableCall(
        request=request, tenant="acme", reply_to="_INBOX.1", reply_json=True, arrival_at_ms=NOW_MS, trace="t"
    )


def test_records_are_read_as_they_were_written() -> None:
    """A record with a result of either kind, and a queued call, keep all that they hold."""
    for result in (None, FINISHED, CANCELLED):
        record = msgspec.structs.replace(kept(), result=result)
        assert Decoder[Record](Record).decode(encode(record)) == record
    assert Decoder[Job](Job).decode(encode(job())) == job()


def test_keys_tell_tenants_apart() -> None:
    """The same id of two tenants is two calls, and no id can be chosen that is another tenant's."""
    keys = {key_of("", "mine"), key_of("acme", "mine"), key_of("acme", "mine2"), key_of("", "acme\0mine")}

    assert len(keys) == 4
    assert all(key.isalnum() for key in keys)


def test_what_makes_two_requests_the_same() -> None:
    """Its API and its body, in whatever order: not the program that asks, nor how long it would wait."""
    same = [
        SubmitCall(body={"messages": BODY["messages"], "model": "m"}),
        SubmitCall(body=BODY, program_id=ProgramId("another")),
        SubmitCall(body=BODY, deadline_ms=5.0, thread_id=ThreadId("t2")),
    ]
    others = [SubmitCall(body={**BODY, "n": 1}), SubmitCall(body=BODY, api="/v1/responses")]

    assert {digest_of(request) for request in same} == {digest_of(SubmitCall(body=BODY))}
    assert len({digest_of(request) for request in others} | {digest_of(same[0])}) == 3


def test_first_and_second_time() -> None:
    """A new call is kept with its inbox; another inbox joins it, the same one once."""
    first = kept("_INBOX.1")
    second = CALLS.arrived(call("_INBOX.2"), first, NOW_MS, "other")
    assert isinstance(second, Keep)
    third = CALLS.arrived(call("_INBOX.2"), second.record, NOW_MS, "other")

    assert (first.id, first.nonce, first.queued) == ("mine", "n", False)
    assert [waiting.subject for waiting in second.record.waiting] == ["_INBOX.1", "_INBOX.2"]
    assert third == second


def test_other_body() -> None:
    """It is refused, before and after the result."""
    record = kept()
    for known in (record, CALLS.ended(record, FINISHED, NOW_MS)):
        refused = CALLS.arrived(call(body={**BODY, "n": 2}), known, NOW_MS, "other")
        assert isinstance(refused, Failed)
        assert (refused.status, refused.error.code, refused.error.param) == (409, "idempotency_conflict", "id")


def test_crowd() -> None:
    """So many inboxes may wait for a call; the next may come again."""
    record = kept("_INBOX.0")
    for number in range(1, WAITING_MAX):
        step = CALLS.arrived(call(f"_INBOX.{number}"), record, NOW_MS, "other")
        assert isinstance(step, Keep)
        record = step.record
    refused = CALLS.arrived(call("_INBOX.x"), record, NOW_MS, "other")

    assert isinstance(refused, Failed)
    assert (refused.status, refused.retry_safe) == (429, True)


def test_result_and_its_time() -> None:
    """A result is told and shown for its time, and then the id is free for another call."""
    record = CALLS.ended(kept(), FINISHED, NOW_MS + 500)
    last_ms = NOW_MS + 500 + 9_999
    over_ms = last_ms + 1

    assert CALLS.arrived(call(), record, last_ms, "other") == Tell(record)
    shown = CALLS.shown(record, last_ms)
    assert isinstance(shown, CallResult)
    assert (shown.result, shown.waited_ms, shown.kept_until_ms) == (FINISHED, 500.0, over_ms)
    assert CALLS.shown(record, over_ms) == UNKNOWN
    anew = CALLS.arrived(call(body={**BODY, "n": 2}), record, over_ms, "other")
    assert isinstance(anew, Keep)
    assert (anew.record.nonce, anew.record.result) == ("other", None)


def test_pending_is_shown() -> None:
    """Whoever asks too early hears for how long the call has waited; who asks for nothing hears that."""
    shown = CALLS.shown(kept(), NOW_MS + 250)

    assert isinstance(shown, CallResult)
    assert (shown.id, shown.result, shown.waited_ms, shown.kept_until_ms) == ("mine", None, 250.0, None)
    assert CALLS.shown(None, NOW_MS) == UNKNOWN


def test_what_the_client_hears() -> None:
    """It is told its own id, and whether the result was there."""
    pending = accepted(kept(), call(program_id="p1").request)
    over = accepted(CALLS.ended(kept(), FINISHED, NOW_MS), call().request)

    assert (pending.call_id, pending.program_id, pending.durable, pending.replayed) == ("mine", "p1", True, False)
    assert (over.call_id, over.program_id, over.thread_id, over.replayed) == ("mine", "p", "main", True)


def test_what_comes_from_the_queue() -> None:
    """A call is tried as an ordinary one; nothing is done for a record that is gone or another's; a result is told."""
    step = CALLS.delivered(job(program_id="p1", thread_id="t2", agent="a"), kept(), NOW_MS)
    assert isinstance(step, Try)
    ended = CALLS.ended(kept(), FINISHED, NOW_MS)

    assert (step.request.durable, step.request.id, step.request.deadline_ms) == (False, None, None)
    assert (step.request.program_id, step.request.thread_id, step.request.agent) == ("p1", "t2", "a")
    assert step.within_s == SETTINGS.attempt_s
    assert CALLS.delivered(job(), None, NOW_MS) is None
    assert CALLS.delivered(job(), msgspec.structs.replace(kept(), nonce="earlier"), NOW_MS) is None
    assert CALLS.delivered(job(), ended, NOW_MS) == Tell(ended)


def test_deadline_counts_from_the_submission() -> None:
    """Each try gets what is left of it; when nothing is left, that is the result."""
    late = job(deadline_ms=3000.0)
    step = CALLS.delivered(late, kept(), NOW_MS + 1000)
    assert isinstance(step, Try)

    assert step.request.deadline_ms == 2000.0
    assert 2.0 < step.within_s < 10.0
    assert CALLS.delivered(late, kept(), NOW_MS + 3000) == LATE
    assert CALLS.tried(late, failure(503), NOW_MS + 2875, 8) == Later(0.125)
    assert CALLS.tried(late, failure(503), NOW_MS + 3000, 8) == LATE


@pytest.mark.parametrize(
    ("end", "again"),
    [
        (failure(503, "engine_lost"), True),
        (failure(503, "not_routed"), True),
        (failure(502, "lost_frames"), True),
        (failure(429, "too_many_calls_of_program"), True),
        (failure(413, "any", retry_safe=True), True),
        (failure(404, "model_not_found"), True),
        (failure(404, "program_not_found"), False),
        (failure(400, "context_length_exceeded"), False),
        (failure(499, "cancelled"), False),
        (failure(500), False),
        (failure(504, "deadline_exceeded"), False),
    ],
)
def test_what_is_tried_again(end: Failed, again: bool) -> None:  # noqa: FBT001 a table's column
    """What was lost or refused for now; anything else is the result."""
    decided = CALLS.tried(job(), end, NOW_MS, 1)

    assert decided == (Later(0.5) if again else end)


def test_an_answer_is_the_result() -> None:
    """However late it comes."""
    assert CALLS.tried(job(deadline_ms=1.0), FINISHED, NOW_MS + 1e9, 9) == FINISHED


def test_pauses_grow() -> None:
    """Each is twice the one before, or as long as the service asks for, up to a bound."""
    pauses = [CALLS.tried(job(), failure(503), NOW_MS, deliveries) for deliveries in (1, 2, 3, 60)]
    asked = [CALLS.tried(job(), failure(503, retry_after_s=after), NOW_MS, 1) for after in (5.0, 1e6)]

    assert pauses == [Later(0.5), Later(1.0), Later(2.0), Later(PAUSE_MAX_S)]
    assert asked == [Later(5.0), Later(PAUSE_MAX_S)]


def test_tries_have_an_end() -> None:
    """After their time the result is a failure that says what the last one was; one is made in any case."""
    assert isinstance(CALLS.delivered(job(), kept(), NOW_MS + 1e9), Try)
    given_up = CALLS.tried(job(), failure(503), NOW_MS + 99_900, 1)

    assert isinstance(given_up, Failed)
    assert (given_up.status, given_up.error.code, given_up.retry_safe) == (503, "tries_over", False)
    assert "it broke" in given_up.error.message
    assert CALLS.tried(job(), failure(503), NOW_MS + 99_400, 1) == Later(0.5)


def test_unknown_model_is_believed_in_the_end() -> None:
    """Its engine may be starting; not for ever."""
    calls = DurableCalls(DurableCallsSettings())
    end = failure(404, "model_not_found")

    assert isinstance(calls.tried(job(), end, NOW_MS + (MODEL_S - 1) * 1000, 1), Later)
    assert calls.tried(job(), end, NOW_MS + MODEL_S * 1000, 1) == end
