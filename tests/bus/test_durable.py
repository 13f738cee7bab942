"""Durable calls on a real NATS server: executed once by their id, and their results are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from autellix.schemas import subjects
from autellix.schemas.codec import DURABLE_EVENTS, encode
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import (
    Accepted,
    CallResult,
    CancelCalls,
    DurableLoad,
    Failed,
    Finished,
    Frame,
    GetResult,
    SubmitCall,
)
from autellix.services.durable_calls.store import BUCKET, CONSUMER, STREAM
from tests.bus.durable_world import PATIENCE_S, SETTINGS, SLOW, response

if TYPE_CHECKING:
    from autellix.services.bus import Delivery
    from tests.bus.durable_world import World

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


async def test_once_by_id(durable: World) -> None:
    """The same id again is not executed again: it gets the answer that is there, and is told so."""
    await durable.start()
    first = await (await durable.submit("mine")).frames()
    again = await (await durable.submit("mine")).frames()
    found = await durable.ended("mine")

    assert [type(frame) for frame in first] == [Accepted, Finished]
    assert isinstance(first[0], Accepted)
    assert (first[0].call_id, first[0].durable, first[0].replayed) == ("mine", True, False)
    assert isinstance(again[0], Accepted)
    assert again[0].replayed
    assert response(first[-1]) == response(again[-1]) == response(found.result)
    assert durable.executions() == 1


async def test_what_it_reports(durable: World) -> None:
    """Its heartbeat tells what is in the queue, what is being tried, and what has a result."""
    bus, heard = await durable.connect(), asyncio.Queue[DurableLoad]()

    async def take(delivery: Delivery) -> None:
        await heard.put(DURABLE_EVENTS.decode(delivery.data))

    await bus.subscribe(subjects.DURABLE_EVENTS, take)
    await bus.flush()
    await durable.start()
    idle = await heard.get()
    inboxes = [await durable.submit(f"mine-{number}", SLOW) for number in range(6)]
    async with asyncio.timeout(PATIENCE_S):
        while (busy := await heard.get()).trying < SETTINGS["concurrency"]:
            pass
        for inbox in inboxes:
            await inbox.frames()
        while (done := await heard.get()).pending:
            pass

    assert (idle.available, idle.pending, idle.tries) == (True, 0, 0)
    assert (busy.pending, busy.tries, busy.finished) == (6, 4, 0)
    assert (done.trying, done.tries, done.finished, done.failed) == (0, 6, 6, 0)


async def test_who_joins_a_pending_call(durable: World) -> None:
    """Everybody who asks while a call is pending hears its one result."""
    await durable.start()
    inboxes = [await durable.submit("mine", SLOW) for _ in range(3)]
    answers = [await inbox.frames() for inbox in inboxes]

    assert [[type(frame) for frame in frames] for frames in answers] == [[Accepted, Finished]] * 3
    assert len({response(frames[-1])["id"] for frames in answers}) == 1
    assert durable.executions() == 1


async def test_another_call_under_the_same_id(durable: World) -> None:
    """It is refused, whether the first has ended or not, and the first is not disturbed."""
    await durable.start()
    inbox = await durable.submit("mine", SLOW)
    during = await (await durable.submit("mine", {"max_tokens": 9})).frames()
    frames = await inbox.frames()
    after = await (await durable.submit("mine", {"max_tokens": 9})).frames()

    assert isinstance(frames[-1], Finished)
    for (refused,) in (during, after):
        assert isinstance(refused, Failed)
        assert (refused.status, refused.error.code, refused.retry_safe) == (409, "idempotency_conflict", False)
    assert durable.executions() == 1


async def test_result_is_fetched_later(durable: World) -> None:
    """Nobody has to wait: a call is pending, then its result is there, for its time; then the id is free."""
    await durable.start(results_kept_s=60.0)
    name = durable.client.bus.new_inbox()
    call = SubmitCall(body={**BODY, **SLOW}, durable=True, id="mine")
    await durable.client.bus.publish(subjects.CALLS_SUBMIT, encode(call), reply=name)
    async with asyncio.timeout(PATIENCE_S):
        while not isinstance(pending := await durable.result("mine"), CallResult):
            pass
    found = await durable.ended("mine")
    unknown = await durable.result("other")
    durable.ahead_ms = 61_000.0
    expired = await durable.result("mine")
    again = await (await durable.submit("mine", {"max_tokens": 2})).frames()

    assert pending.result is None
    assert pending.kept_until_ms is None
    assert found.waited_ms > 0
    assert [(each.status, each.error.code) for each in (unknown, expired)] == [(404, "call_not_found")] * 2
    assert response(again[-1])["usage"]["completion_tokens"] == 2
    assert durable.executions() == 2


async def test_tenants(durable: World) -> None:
    """The same id of another tenant is another call, and a tenant's result is for it alone."""
    await durable.start()
    mine = await (await durable.submit("mine")).frames()
    call = SubmitCall(body={**BODY, "max_tokens": 5}, durable=True, id="mine")
    theirs = await (await durable.client.send("autellix.tenants.acme.calls.submit", encode(call))).frames()
    found = await durable.client.ask("autellix.tenants.acme.calls.result", GetResult(id="mine"))
    others = await durable.client.ask("autellix.tenants.other.calls.result", GetResult(id="mine"))

    assert response(mine[-1]) != response(theirs[-1]) == response(found.result)
    assert others.status == 404


async def test_cancel(durable: World) -> None:
    """A call that is cancelled by its id ends for everybody, and its engine is free."""
    await durable.start()
    inbox = await durable.submit("mine", {"max_tokens": 10_000})
    await durable.client.heard.event("call.started")
    await durable.client.send(subjects.CALLS_CANCEL, encode(CancelCalls(call_id=CallId("mine"))))
    frames = await inbox.frames()
    await durable.client.heard.event("call.cancelled")
    found = await durable.ended("mine")

    assert isinstance(frames[-1], Failed)
    assert (frames[-1].status, frames[-1].error.code) == (499, "cancelled")
    assert found.result == frames[-1]


async def test_failures_are_results(durable: World) -> None:
    """What would fail each time is not tried again: its failure is the result."""
    await durable.start()
    inbox = await durable.submit("mine", program_id=ProgramId("never-began"))
    frames = await inbox.frames()
    found = await durable.ended("mine")

    assert isinstance(frames[-1], Failed)
    assert (frames[-1].status, frames[-1].error.code) == (404, "program_not_found")
    assert found.result == frames[-1]


async def test_deadline(durable_bare: World) -> None:
    """It counts from the submission, over all tries."""
    await durable_bare.start_pipeline(engine=False)
    await durable_bare.start()
    frames = await (await durable_bare.submit("mine", deadline_ms=700.0)).frames()

    assert isinstance(frames[-1], Failed)
    assert (frames[-1].status, frames[-1].error.code) == (504, "deadline_exceeded")


async def test_call_waits_for_an_engine(durable_bare: World) -> None:
    """Where nobody can answer now a call is tried again, until somebody can."""
    await durable_bare.start_pipeline(engine=False)
    await durable_bare.start()
    inbox = await durable_bare.submit("mine")
    await durable_bare.client.heard.event("call.failed")
    await durable_bare.pipeline.start_engine()

    assert isinstance((await inbox.frames())[-1], Finished)


async def test_two_instances(durable: World) -> None:
    """They share the work, and each call is executed once."""
    for _ in range(2):
        await durable.start()
    inboxes = [await durable.submit(f"call {number}") for number in range(20)]
    answers = [await inbox.frames() for inbox in inboxes]

    assert [[type(frame) for frame in frames] for frames in answers] == [[Accepted, Finished]] * 20
    assert durable.executions() == 20


async def test_no_room(durable: World) -> None:
    """What cannot be kept is not accepted, and may be sent again."""
    await durable.start(results_max_bytes=40_000)
    ends: list[Frame] = []
    async with asyncio.timeout(2 * PATIENCE_S):
        while not (ends and isinstance(ends[-1], Failed)):
            ends.append((await (await durable.submit(f"call {len(ends)}", {"max_tokens": 1})).frames())[-1])
    refused = ends.pop()

    assert isinstance(refused, Failed)
    assert (refused.status, refused.error.code, refused.retry_safe) == (503, "durable_full", True)
    assert ends
    assert all(isinstance(end, Finished) for end in ends)


async def test_without_jetstream(durable_bare: World) -> None:
    """Nothing is accepted that cannot be kept; once it can, it is."""
    durable_bare.server.kill()
    durable_bare.server.start(jetstream=False)
    await durable_bare.start_pipeline()
    await durable_bare.start()
    (refused,) = await (await durable_bare.submit("mine")).frames()
    unknown = await durable_bare.result("mine")

    assert isinstance(refused, Failed)
    assert (refused.status, refused.error.code, refused.retry_safe) == (503, "durable_not_kept", True)
    assert (unknown.status, unknown.error.code) == (503, "durable_not_kept")

    await durable_bare.restart_server()
    async with asyncio.timeout(PATIENCE_S):
        while isinstance((await (await durable_bare.submit("mine")).frames())[-1], Failed):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_other_settings(durable: World) -> None:
    """Another life of the service has its own bounds kept, and what is there stays."""
    await durable.start()
    first = await (await durable.submit("mine")).frames()
    await durable.start(results_kept_s=50.0, tries_s=100.0, heartbeat_s=1.0, results_max_bytes=10_000_000)
    again = await (await durable.submit("mine")).frames()
    jetstream = (await durable.connect()).jetstream()
    kept = {name: (await jetstream.stream_info(name)).config for name in (STREAM, f"KV_{BUCKET}")}
    consumer = await jetstream.consumer_info(STREAM, CONSUMER)

    assert response(again[-1]) == response(first[-1])
    assert [config.max_age for config in kept.values()] == [150.0, 150.0]
    assert kept[f"KV_{BUCKET}"].max_bytes == 10_000_000
    assert consumer.config.ack_wait == 3.0
