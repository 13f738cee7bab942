"""Durable calls over HTTP: a key makes a call one, and its answer can be asked for again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import Accepted, CallFinished, CallResult, Failed, Finished, GetResult

if TYPE_CHECKING:
    from autellix.schemas.base import Message
    from autellix.services.bus import Delivery
    from tests.gateway.conftest import Front, PlayedCall

CHAT = "/v1/chat/completions"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
RESPONSE = {"id": "chat-1", "choices": []}
END = Finished(
    call_id=CallId("call-7"),
    seq=1,
    call=CallFinished(
        call_id=CallId("call-7"),
        program_id=ProgramId("program-1"),
        thread_id=ThreadId("main"),
        at_ms=2.0,
        arrival_at_ms=1.0,
    ),
    response=RESPONSE,
)
FAILED = Failed(status=404, error=ErrorBody(message="none", type="not_found_error", code="call_not_found"))


async def accept(call: PlayedCall, *, replayed: bool = False) -> None:
    """Take a durable call in."""
    frame = Accepted(
        call_id=CallId(call.request.id or ""),
        program_id=ProgramId(""),
        thread_id=ThreadId(""),
        durable=True,
        replayed=replayed,
    )
    await call.send(encode(frame))


async def post(front: Front, key: str, **fields: Any) -> tuple[asyncio.Task[Any], PlayedCall]:
    """Post a call with a key; return the answer to come, and the call."""
    asking = asyncio.create_task(front.http.post(CHAT, json={**BODY, **fields}, headers={"Idempotency-Key": key}))
    return asking, await front.calls.get()


@pytest.mark.parametrize(
    ("key", "call_id"), [("mine", "mine"), ('"8e03978e-40d5"', "8e03978e-40d5"), ("ключ", "ключ"), ('"', '"')]
)
async def test_key_makes_a_call_durable(front: Front, key: str, call_id: str) -> None:
    """Its id is the key, with or without the quotes that the header's standard has; the answer is waited for."""
    headers = {"Idempotency-Key": key.encode()}
    asking = asyncio.create_task(front.http.post(CHAT, json=BODY, headers=headers))  # type: ignore[arg-type]
    call = await front.calls.get()
    await accept(call)
    await call.send(encode(END))
    answer = await asking

    assert (call.request.durable, call.request.id) == (True, call_id)
    assert (answer.status_code, answer.json()) == (200, RESPONSE)
    assert answer.headers["X-Autellix-Program-Id"] == "program-1"
    assert "Idempotent-Replayed" not in answer.headers


async def test_other_calls_are_not(front: Front) -> None:
    """Without a key, or with a blank one, a call is as it always was."""
    for headers in ({}, {"Idempotency-Key": ""}):
        asking, call = await front.ask(headers=headers)
        await call.finish(1, RESPONSE)
        await asking

        assert (call.request.durable, call.request.id) == (False, None)


async def test_replay_is_told(front: Front) -> None:
    """An answer that was there already says so, a failure too."""
    for end in (END, FAILED):
        asking, call = await post(front, "mine")
        await accept(call, replayed=True)
        await call.send(encode(end))
        answer = await asking

        assert answer.headers["Idempotent-Replayed"] == "true"
        assert answer.status_code == (200 if end is END else 404)


async def test_client_that_hangs_up(front: Front) -> None:
    """Its durable call goes on, accepted or not; another call is cancelled."""
    asking, call = await post(front, "mine")
    await accept(call)
    asking.cancel()
    early, unaccepted = await post(front, "other")
    early.cancel()
    await asyncio.gather(asking, early, return_exceptions=True)
    await asyncio.sleep(0.1)  # a gateway that still waits for it would take it in
    await accept(unaccepted)
    plain, ordinary = await front.ask()
    plain.cancel()
    async with asyncio.timeout(5):
        cancelled = await front.cancelled.get()

    assert cancelled.call_id == "call-1"
    assert front.cancelled.empty()
    assert not ordinary.request.durable


async def test_refusal_has_the_openai_shape(front: Front) -> None:
    """Another body under a key that is taken is a 409 whose code says so."""
    asking, call = await post(front, "mine")
    error = ErrorBody(message="taken", type="invalid_request_error", code="idempotency_conflict", param="id")
    await call.send(encode(Failed(status=409, error=error)))
    answer = await asking

    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "idempotency_conflict"


@pytest.mark.parametrize(
    ("known", "status"),
    [
        (CallResult(id="a/b c", submitted_at_ms=0.0, waited_ms=5.0, result=END, kept_until_ms=9.0), 200),
        (CallResult(id="a/b c", submitted_at_ms=0.0, waited_ms=5.0, result=FAILED, kept_until_ms=9.0), 404),
        (CallResult(id="a/b c", submitted_at_ms=0.0, waited_ms=5.0), 202),
        (FAILED, 404),
    ],
)
async def test_result_is_asked_for(front: Front, known: Message, status: int) -> None:
    """An answer is the API's own, a failure an error, and what is pending 202 with a time to come again."""
    asked: list[str] = []

    async def tell(delivery: Delivery) -> None:
        asked.append(Decoder[GetResult](GetResult).decode(delivery.data).id)
        await front.bus.publish(delivery.reply, encode(known))

    await front.bus.subscribe(subjects.CALLS_RESULT, tell)
    await front.bus.flush()
    answer = await front.http.get("/v1/calls/a/b%20c")

    assert asked == ["a/b c"]
    assert answer.status_code == status
    match status:
        case 200:
            assert answer.json() == RESPONSE
            assert answer.headers["X-Autellix-Call-Id"] == "call-7"
        case 202:
            assert (answer.json()["status"], answer.json()["waited_ms"]) == ("pending", 5.0)
            assert answer.headers["Retry-After"] == "1"
        case _:
            assert answer.json()["error"]["code"] == "call_not_found"
