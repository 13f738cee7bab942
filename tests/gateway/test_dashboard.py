"""The page at `/`: its files, and the stream that a viewer sees."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from autellix.schemas import subjects
from autellix.schemas.codec import encode
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import CallSubmitted, EngineList, ProgramList, ProgramRecord
from autellix.services.gateway import dashboard as module

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from autellix.schemas.messages import Event
    from autellix.services.bus import Delivery
    from tests.gateway.conftest import Front

ROW = ProgramRecord(program_id=ProgramId("p-1"), name="<b>mine</b>", started_at_ms=1.0)


def submitted(number: int) -> CallSubmitted:
    """Return the event of a call."""
    known: dict[str, Any] = {"program_id": ProgramId("p-1"), "thread_id": ThreadId("main"), "at_ms": 2.0}
    return CallSubmitted(call_id=CallId(f"c{number}"), api="", model="m", **known)


async def events(front: Front) -> AsyncIterator[tuple[str, Any]]:
    """Yield what a viewer's stream brings: names and objects."""
    async with front.http.stream("GET", "/page/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, msgspec.json.decode(line[6:])


async def say(front: Front, event: Event) -> None:
    """Publish an event."""
    await front.bus.publish(subjects.event(event), encode(event))


@pytest.mark.parametrize(
    ("path", "media_type"), [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
)
async def test_files(front: Front, path: str, media_type: str) -> None:
    """The page is there, and a browser that shows it asks nobody else for anything."""
    answer = await front.http.get(path)

    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, media_type)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert set(re.findall(r"https?://[^\"' ]+", answer.text)) <= {"http://www.w3.org/2000/svg"}


async def test_stream(front: Front) -> None:
    """A viewer sees programs and engines, and each event of a call as it comes."""
    for subject, answer in (
        (subjects.PROGRAMS_LIST, ProgramList(programs=[ROW], at_ms=3.0)),
        (subjects.ENGINES_LIST, EngineList(engines=[])),
    ):

        async def on_request(delivery: Delivery, answer: Any = answer) -> None:
            await front.bus.publish(delivery.reply, encode(answer))

        await front.bus.subscribe(subject, on_request)
    await front.bus.flush()
    seen = events(front)
    name, state = await anext(seen)
    await say(front, submitted(1))
    called = await anext(seen)
    await seen.aclose()  # type: ignore[attr-defined] # it is a generator

    assert (name, state["engines"], state["at_ms"]) == ("state", [], 3.0)
    assert [program["name"] for program in state["programs"]] == ["<b>mine</b>"]
    assert (called[0], called[1]["call_id"], called[1]["type"]) == ("call", "c1", "call.submitted")


async def test_services_that_do_not_answer(hasty: Front) -> None:
    """Where a service does not answer, the page can say so."""
    seen = events(hasty)
    _, state = await anext(seen)
    await seen.aclose()  # type: ignore[attr-defined] # it is a generator

    assert state == {"programs": None, "at_ms": None, "engines": None}


async def test_viewers_are_bounded(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many viewers a stream is refused; who leaves makes room, and when the last has left nobody is asked."""
    monkeypatch.setattr(module, "VIEWERS_MAX", 1)
    monkeypatch.setattr(module, "EVERY_S", 0.05)
    asked = asyncio.Queue[None]()

    async def on_engines(delivery: Delivery) -> None:
        await front.bus.publish(delivery.reply, encode(EngineList(engines=[])))

    async def on_request(delivery: Delivery) -> None:
        asked.put_nowait(None)
        await front.bus.publish(delivery.reply, encode(ProgramList(programs=[], at_ms=1.0)))

    await front.bus.subscribe(subjects.PROGRAMS_LIST, on_request)
    await front.bus.subscribe(subjects.ENGINES_LIST, on_engines)
    await front.bus.flush()
    async with front.http.stream("GET", "/page/stream") as answer:
        await anext(answer.aiter_raw())
        refused = await front.http.get("/page/stream")
    again = None
    async with asyncio.timeout(5):
        while again != 200:  # the gateway notices in a moment
            async with front.http.stream("GET", "/page/stream") as answer:
                again = answer.status_code

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_viewers")
    async with asyncio.timeout(20):
        while True:  # a request may be under way
            while not asked.empty():
                asked.get_nowait()
            await asyncio.sleep(0.5)
            if asked.empty():
                break


async def test_stream_ends_with_the_gateway(stoppable: tuple[Front, AsyncExitStack]) -> None:
    """A viewer does not hold a gateway up that stops."""
    front, stack = stoppable
    seen = events(front)
    await anext(seen)
    stopping = asyncio.create_task(stack.aclose())
    async with asyncio.timeout(4):
        async for _ in seen:
            pass
        await stopping
