"""Programs over HTTP: begun, listed, looked at and ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody, Message
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import (
    EndSession,
    Failed,
    GetMetrics,
    GetProgram,
    ListPrograms,
    MetricsText,
    ProgramList,
    ProgramRecord,
    SessionEnded,
    SessionStarted,
    StartSession,
)

if TYPE_CHECKING:
    from autellix.services.bus import Delivery
    from tests.gateway.conftest import Front

ROW = ProgramRecord(program_id=ProgramId("p-1"), name="mine", source="session", started_at_ms=1.0, calls=3)
MISSING = Failed(status=404, error=ErrorBody(message="No such program.", type="not_found_error", code="gone"))


async def played(front: Front, subject: str, kind: type[Any], answer: Message | ProgramRecord) -> list[Any]:
    """Answer requests on a subject; return those that come."""
    heard: list[Any] = []
    decoder = Decoder[Any](kind)

    async def on_request(delivery: Delivery) -> None:
        heard.append(decoder.decode(delivery.data))
        await front.bus.publish(delivery.reply, encode(answer))

    await front.bus.subscribe(subject, on_request)
    await front.bus.flush()
    return heard


async def test_start(front: Front) -> None:
    """A program begins, and the answer says how it is called from now on."""
    started = SessionStarted(program_id=ProgramId("p-1"), ttl_ms=90_000.0)
    heard = await played(front, subjects.SESSIONS_START, StartSession, started)
    answer = await front.http.post("/v1/programs", json={"name": "mine", "agent": "coder", "ttl_s": 90})
    bare = await front.http.post("/v1/programs")

    assert (201, 201) == (answer.status_code, bare.status_code)
    assert answer.json() == {"id": "p-1", "object": "program", "name": "mine", "ttl_s": 90.0}
    assert ("/v1/programs/p-1", "p-1") == (answer.headers["location"], answer.headers["x-autellix-program-id"])
    assert [StartSession(name="mine", agent="coder", ttl_ms=90_000.0), StartSession()] == heard


async def test_list(front: Front) -> None:
    """The process table, whole or of those that run."""
    heard = await played(front, subjects.PROGRAMS_LIST, ListPrograms, ProgramList(programs=[ROW], at_ms=2.0))
    answer = await front.http.get("/v1/programs")
    await front.http.get("/v1/programs?state=running")

    (row,) = answer.json()["data"]
    expected = {"id": "p-1", "object": "program", "name": "mine", "source": "session", "calls": 3}
    assert expected == {name: row[name] for name in expected}
    assert [ListPrograms(), ListPrograms(include_ended=False)] == heard


async def test_get(front: Front) -> None:
    """One program, by its id or name as it was sent."""
    heard = await played(front, subjects.PROGRAMS_GET, GetProgram, ROW)
    answer = await front.http.get("/v1/programs/a%20name")

    assert "p-1" == answer.json()["id"]
    assert [GetProgram(program_id=ProgramId("a name"))] == heard


async def test_get_that_is_not_there(front: Front) -> None:
    """A service's refusal is the HTTP answer."""
    await played(front, subjects.PROGRAMS_GET, GetProgram, MISSING)
    answer = await front.http.get("/v1/programs/p-2")

    assert (404, "gone") == (answer.status_code, answer.json()["error"]["code"])


async def test_delete_ends_the_program(front: Front) -> None:
    """The session manager is told, and the answer comes when it has confirmed."""
    heard = await played(front, subjects.SESSIONS_END, EndSession, SessionEnded(program_id=ProgramId("p-1")))
    answer = await front.http.delete("/v1/programs/p-1")

    assert (204, b"") == (answer.status_code, answer.content)
    assert [EndSession(program_id=ProgramId("p-1"))] == heard


async def test_release(front: Front) -> None:
    """ThunderAgent's clients end theirs in their own way."""
    heard = await played(front, subjects.SESSIONS_END, EndSession, SessionEnded(program_id=ProgramId("t-1")))
    answer = await front.http.post("/programs/release", json={"program_id": "t-1"})

    assert (200, "t-1") == (answer.status_code, answer.json()["program_id"])
    assert [EndSession(program_id=ProgramId("t-1"))] == heard


async def test_last_call_ends_the_program(front: Front) -> None:
    """A session that says which call is its last one is over with that call, and not before."""
    heard = await played(front, subjects.SESSIONS_END, EndSession, SessionEnded(program_id=ProgramId("program-1")))
    session = {"X-Dynamo-Session-ID": "d"}
    for headers in (session, {**session, "X-Dynamo-Session-Final": "true"}):
        asking, call = await front.ask(headers=headers)
        during = list(heard)
        await call.finish(1, {})
        await asking
    async with asyncio.timeout(10):
        while not heard:  # noqa: ASYNC110 - it is heard in another task
            await asyncio.sleep(0.01)

    assert during == []
    assert heard == [EndSession(program_id=ProgramId("program-1"))]


async def test_metrics(front: Front) -> None:
    """What the metrics service shows is shown here, too."""
    heard = await played(front, subjects.METRICS_GET, GetMetrics, MetricsText(text="a 1\n"))
    answer = await front.http.get("/metrics")

    assert (answer.text, answer.headers["content-type"]) == ("a 1\n", "text/plain; version=0.0.4; charset=utf-8")
    assert heard == [GetMetrics()]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/programs", b"[]"),
        ("POST", "/v1/programs", b"\xff"),
        ("POST", "/v1/programs", b'{"ttl_s": 0}'),
        ("POST", "/v1/programs", b'{"ttl_s": "long"}'),
        ("POST", "/programs/release", b"{}"),
        ("POST", "/programs/release", b'{"program_id": ""}'),
        ("GET", "/v1/programs?state=odd", b""),
    ],
)
async def test_bad_requests(front: Front, method: str, path: str, body: bytes) -> None:
    """What cannot be understood is refused here, in the OpenAI shape."""
    answer = await front.http.request(method, path, content=body)

    assert 400 == answer.status_code
    assert answer.json()["error"]["message"]


async def test_requests_that_nobody_confirms(hasty: Front) -> None:
    """Without a service the answer is 503 after a bounded time, and says so."""
    for method, path in (
        ("DELETE", "/v1/programs/p-1"),
        ("GET", "/v1/programs/p-1"),
        ("GET", "/v1/programs"),
        ("POST", "/v1/programs"),
        ("GET", "/metrics"),
    ):
        answer = await hasty.http.request(method, path)

        assert 503 == answer.status_code
        assert "not_confirmed" == answer.json()["error"]["code"]


async def test_answer_that_is_unreadable(front: Front) -> None:
    """Bytes that are no answer are 502, not a hung request."""

    async def on_request(delivery: Delivery) -> None:
        await front.bus.publish(delivery.reply, b"\xc1")

    await front.bus.subscribe(subjects.PROGRAMS_GET, on_request)
    await front.bus.flush()
    answer = await front.http.get("/v1/programs/p-1")

    assert (502, "bad_frame") == (answer.status_code, answer.json()["error"]["code"])
