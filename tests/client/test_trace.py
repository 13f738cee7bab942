"""`autellix show`, `end` and `trace`: one program, looked at, ended and drawn; on a stack with simulated engines."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from autellix.client import Program, cli
from autellix.client.gantt import draw, trace_events
from autellix.client.stack import Stack
from autellix.client.timeline import Phase, Timeline
from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId
from autellix.schemas.messages import (
    CallFinished,
    CallHeld,
    CallPreempted,
    CallResumed,
    CallRouted,
    CallStarted,
    CallSubmitted,
)

P = ProgramId("p")
Output = pytest.CaptureFixture[str]


def lived() -> Timeline:
    """Return two calls of a program: one waits, is held, runs, is displaced and runs again; one still runs."""
    timeline = Timeline()
    first: dict[str, Any] = {"call_id": CallId("c1"), "program_id": P, "thread_id": ThreadId("main")}
    second = {**first, "call_id": CallId("c2")}
    e0 = EngineId("e0")
    for event in (
        CallSubmitted(**first, at_ms=1000.0, api="", model="m"),
        CallRouted(**first, at_ms=1001.0, engine_id=e0, reason=""),
        CallHeld(**first, at_ms=1002.0, engine_id=e0, reason=""),
        CallStarted(**first, at_ms=1010.0, engine_id=e0, wait_ms=9.0),
        CallPreempted(**first, at_ms=1020.0, engine_id=e0),
        CallResumed(**first, at_ms=1030.0, engine_id=e0),
        CallFinished(**first, at_ms=1040.0, engine_id=e0, arrival_at_ms=1000.0),
        CallSubmitted(**second, at_ms=1100.0, api="", model="m"),
        CallStarted(**second, at_ms=1105.0, engine_id=e0, wait_ms=5.0),
    ):
        timeline.add(event)
    return timeline


def test_phases() -> None:
    """A call's life is cut where something happened to it, and one that has not ended goes on up to now."""
    timeline = lived()
    first, second = timeline.threads(P)[ThreadId("main")].values()

    assert first.phases(timeline.until_ms) == [
        Phase("waiting", 1000.0, 1002.0),
        Phase("held", 1002.0, 1010.0),
        Phase("executing", 1010.0, 1020.0),
        Phase("preempted", 1020.0, 1030.0),
        Phase("executing", 1030.0, 1040.0),
    ]
    assert second.phases(1200.0) == [Phase("waiting", 1100.0, 1105.0), Phase("executing", 1105.0, 1200.0)]
    assert timeline.interruptions(P) == [(1040.0, 1100.0)]
    assert (timeline.since_ms, timeline.until_ms) == (1000.0, 1105.0)


def test_trace_format() -> None:
    """A trace names its rows and has each phase as a complete event, in microseconds."""
    events = trace_events(lived(), P, "agent")
    names = [event["args"]["name"] for event in events if event["ph"] == "M"]
    slices = [(event["name"], event["ts"], event["dur"], event["tid"]) for event in events if event["ph"] == "X"]

    assert names == ["agent", "program", "main"]
    assert slices[:2] == [("interrupted", 1_040_000, 60_000, 0), ("waiting", 1_000_000, 2000, 1)]
    assert events[-1]["args"] == {"call_id": "c2", "engine_id": None}


def test_picture(tmp_path: Path) -> None:
    """The picture is a PNG."""
    draw(lived(), P, "agent", tmp_path / "p.png")

    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


async def named(stack: Stack) -> str:
    """Run a program and return its id."""
    async with Program("watched", nats_url=stack.nats_url) as program:
        for _ in range(3):
            await program.chat([{"role": "user", "content": "Hi"}], max_tokens=3)
        return program.id


@pytest.fixture
async def program_id(stack: Stack) -> str:
    """Return a program that ran."""
    return await named(stack)


def test_trace(stack: Stack, program_id: str, tmp_path: Path, capsys: Output) -> None:
    """The calls of a program that is over are still known, and written where they were asked for."""
    nats = ["--nats-url", stack.nats_url]
    file, picture = tmp_path / "t.json", tmp_path / "t.png"
    assert cli.main(["trace", program_id, "--out", str(file), "--png", str(picture), *nats]) == 0
    assert cli.main(["trace", program_id[:8], "--out", "-", *nats]) == 0
    said = capsys.readouterr().out.splitlines()
    slices = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]

    assert said[:2] == [str(file), str(picture)]
    assert json.loads(said[2]) == json.loads(file.read_text())
    assert len({event["args"]["call_id"] for event in slices if event["name"] == "executing"}) == 3
    assert picture.stat().st_size > 1000


def test_trace_says_what_it_wrote(stack: Stack, program_id: str, tmp_path: Path, capsys: Output) -> None:
    """With --json a script hears which program it was and where the files are."""
    file = tmp_path / "t.json"
    assert cli.main(["trace", program_id[:8], "--out", str(file), "--json", "--nats-url", stack.nats_url]) == 0

    assert json.loads(capsys.readouterr().out) == {"program_id": program_id, "files": [str(file)]}
    assert file.exists()


def test_show(stack: Stack, program_id: str, capsys: Output) -> None:
    """A program is shown by its id, its beginning or its name, for people and as JSON."""
    nats = ["--nats-url", stack.nats_url]
    for name in (program_id, program_id[:8], "watched"):
        assert cli.main(["show", name, *nats]) == 0
        assert program_id in capsys.readouterr().out
    assert cli.main(["show", program_id, "--json", *nats]) == 0

    assert json.loads(capsys.readouterr().out)["calls"] == 3


async def begun(stack: Stack, name: str) -> None:
    """Begin a program by naming it."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{stack.port}") as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        await client.post("/v1/chat/completions", json=body, headers={"X-Session-ID": name})


def test_end(stack: Stack, capsys: Output) -> None:
    """A named program is ended by its name; a second time, or for one that never was, it is no error."""
    nats = ["--nats-url", stack.nats_url]
    asyncio.run(begun(stack, "to-be-ended"))
    assert cli.main(["show", "to-be-ended", "--json", *nats]) == 0
    before = json.loads(capsys.readouterr().out)["state"]
    for name in ("to-be-ended", "to-be-ended", "nobody-yet"):
        assert cli.main(["end", name, *nats]) == 0
    capsys.readouterr()
    assert cli.main(["show", "to-be-ended", "--json", *nats]) == 0

    assert (before, json.loads(capsys.readouterr().out)["state"]) == ("running", "ended")


@pytest.mark.parametrize("verb", ["show", "trace"])
def test_unknown_program(stack: Stack, verb: str, capsys: Output) -> None:
    """A program that nobody knows is one sentence."""
    assert cli.main([verb, "no-such-program", "--nats-url", stack.nats_url]) == 1
    assert capsys.readouterr().err == "autellix: No such program. (status 404)\n"
