"""The page at `/` in a real browser: what it shows of programs, engines and calls, and that names are never markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.codec import encode
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import (
    CallFinished,
    CallPreempted,
    CallResumed,
    CallStarted,
    CallSubmitted,
    EngineList,
    EngineLoad,
    ProgramList,
    ProgramRecord,
)
from tests.gateway.browser import CHROMIUM, opened

if TYPE_CHECKING:
    from pathlib import Path

    from autellix.services.bus import Delivery
    from tests.gateway.conftest import Front

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

EVIL = "<img src=x onerror=alert(1)>"
PROGRAMS = [
    ProgramRecord(
        program_id=ProgramId("p-1"), name=EVIL, source="codex", started_at_ms=0.0, service_ms=4000.0,
        waiting_ms=1000.0, busy_ms=5000.0, calls=7, live_calls=1, queue=2, home_engine=EngineId("e0"),
    ),
    ProgramRecord(
        program_id=ProgramId("p-2"), name="short", source="none", state="ended", started_at_ms=0.0,
        ended_at_ms=1000.0, output_tokens=5,
    ),
]  # fmt: skip
ENGINE = EngineLoad(
    engine_id=EngineId("e0"), incarnation=Incarnation("i1"), models=("tiny",), policy="auto", state="ready", slots=4,
    calls=3, running=2, waiting=1, kv_usage=0.25, steps=1, at_ms=0.0, programs_held=1,
)  # fmt: skip


async def played(front: Front, **answers: Any) -> None:
    """Answer as the process table and the load balancer do."""
    for subject, answer in ((subjects.PROGRAMS_LIST, answers["programs"]), (subjects.ENGINES_LIST, answers["engines"])):

        async def on_request(delivery: Delivery, answer: Any = answer) -> None:
            await front.bus.publish(delivery.reply, encode(answer))

        await front.bus.subscribe(subject, on_request)
    await front.bus.flush()


async def call(front: Front) -> None:
    """Let a call of the first program wait, run, be displaced and run again, and another one begin."""
    known: dict[str, Any] = {"call_id": CallId("c1"), "program_id": ProgramId("p-1"), "thread_id": ThreadId("main")}
    other = {**known, "call_id": CallId("c2"), "thread_id": ThreadId(EVIL)}
    at, e0 = 10_000.0, EngineId("e0")
    for event in (
        CallSubmitted(**known, at_ms=at, api="", model="m"),
        CallStarted(**known, at_ms=at + 100, engine_id=e0, wait_ms=100.0),
        CallPreempted(**known, at_ms=at + 200, engine_id=e0),
        CallResumed(**known, at_ms=at + 300, engine_id=e0),
        CallFinished(**known, at_ms=at + 400, engine_id=e0, arrival_at_ms=at),
        CallSubmitted(**other, at_ms=at + 150, api="", model="m"),
    ):
        await front.bus.publish(subjects.event(event), encode(event))


async def test_page(front: Front, tmp_path: Path) -> None:
    """Programs, queues, engines and calls of the chosen program are there, and nothing is run that came by a name."""
    await played(front, programs=ProgramList(programs=PROGRAMS, at_ms=10_600.0), engines=EngineList(engines=[ENGINE]))
    async with opened(f"http://127.0.0.1:{front.port}/", tmp_path / "browser") as page:
        await page.until("document.querySelectorAll('#programs tbody tr').length === 2")
        press = "dispatchEvent(new PointerEvent('pointerdown', {bubbles: true}))"
        await page.value(f"document.querySelectorAll('#programs tbody tr')[0].{press}")
        await call(front)
        await page.until("document.querySelectorAll('#gantt rect').length === 5")
        kinds = await page.value("[...document.querySelectorAll('#gantt rect')].map((each) => each.classList[0])")
        engines, queues, chosen, images, totals = [
            await page.value(expression)
            for expression in (
                "document.querySelector('#engines tbody').innerText",
                "document.querySelector('#queues').innerText",
                "document.querySelector('#chosen').textContent",
                "document.images.length",
                "document.querySelector('#totals').innerText",
            )
        ]
        await page.screenshot(tmp_path / "wide.png", width=1300, height=900)
        await page.screenshot(tmp_path / "narrow.png", width=400, height=900)
        overflow = await page.value("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        errors = list(page.errors)

    assert kinds == ["waiting", "executing", "preempted", "executing", "waiting"]
    assert (chosen, images, errors, overflow) == (EVIL, 0, [], False)
    assert "e0" in engines
    assert "queue 2" in queues
    assert "1 programs" in totals
    assert (tmp_path / "wide.png").stat().st_size > 10_000


async def test_services_that_are_away(hasty: Front, tmp_path: Path) -> None:
    """A page whose process table does not answer says so, instead of showing nothing."""
    async with opened(f"http://127.0.0.1:{hasty.port}/", tmp_path / "browser") as page:
        text = await page.until("document.querySelector('#connection.lost')?.textContent")

    assert text == "the process table does not answer"
