"""What services remember over their own death, on a real NATS server with JetStream."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import nats
import pytest
from structlog.testing import capture_logs

from autellix.schemas import subjects
from autellix.schemas.codec import encode
from autellix.schemas.ids import CallId, EngineId, ProgramId, ThreadId
from autellix.schemas.messages import (
    CallAdmitted,
    CallFinished,
    CallRouted,
    Event,
    ListPrograms,
    ProgramEnded,
    ProgramList,
    ProgramStarted,
)
from autellix.services import journal as journal_module
from autellix.services import snapshots as module
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Reply
from autellix.services.journal import Journal, remembering
from autellix.services.nats_bus import NatsBus, connect
from autellix.services.process_table.core import ProcessTable
from autellix.services.process_table.listens import LISTENS
from autellix.services.snapshots import BUCKET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SETTINGS = ProcessTableSettings()
NAME = "process-table"
NOW_MS = float(round(time.time() * 1000))


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    """Return a bus on a server that keeps nothing yet."""
    client = await nats.connect(nats_url)
    for stream in (subjects.EVENT_STREAM, f"KV_{BUCKET}"):
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await client.jetstream().delete_stream(stream)
    await client.close()
    bus = await connect(nats_url, name="test")
    yield bus
    await bus.close()


async def opened(bus: NatsBus, name: str = NAME) -> Journal:
    """Return a journal that is open."""
    journal = Journal(bus, name, SETTINGS)
    await journal.open()
    return journal


async def publish(bus: NatsBus, *events: Event) -> None:
    """Let things happen, and be kept."""
    for event in events:
        await bus.publish(subjects.event(event), encode(event))
    await bus.flush()


def life(program: str, calls: int) -> list[Event]:
    """Return the events of a program with so many calls, of 100 ms each, one after the other."""
    program_id = ProgramId(program)
    events: list[Event] = [ProgramStarted(program_id=program_id, name=program, ttl_ms=60_000.0, at_ms=NOW_MS)]
    for number in range(calls):
        known: dict[str, Any] = {
            "call_id": CallId(f"{program}-{number}"),
            "program_id": program_id,
            "thread_id": ThreadId("main"),
        }
        events += [
            CallAdmitted(**known, at_ms=NOW_MS + number, service_ms=100.0 * number, critical_path_ms=100.0 * number),
            CallRouted(**known, at_ms=NOW_MS + number, engine_id=EngineId("e0"), reason="", becomes_home=not number),
            CallFinished(
                **known,
                at_ms=NOW_MS + number + 0.5,
                engine_id=EngineId("e0"),
                arrival_at_ms=NOW_MS + number,
                service_ms=100.0,
                critical_path_at_arrival_ms=100.0 * number,
                output_tokens=3,
            ),
        ]
    return events


def rows(table: ProcessTable) -> dict[str, Any]:
    """Return what a table says of each program."""
    (out,) = table.handle(ListPrograms(), NOW_MS, Reply("_INBOX.1"))
    assert isinstance(out.message, ProgramList)
    return {record.program_id: record for record in out.message.programs}


def of_events(*events: Event) -> dict[str, Any]:
    """Return what a table says that heard of all this as it happened."""
    table = ProcessTable(SETTINGS)
    for event in events:
        table.recover(event, 0.0)
    return rows(table)


async def recovered(bus: NatsBus) -> ProcessTable:
    """Return a table that begins anew and remembers."""
    table = ProcessTable(SETTINGS)
    await (await opened(bus)).recover(table)
    return table


async def test_events_alone(bus: NatsBus) -> None:
    """Without a snapshot the events that are kept bring the whole table back."""
    await opened(bus)
    events = [*life("p", 3), *life("q", 1), ProgramEnded(program_id=ProgramId("q"), at_ms=NOW_MS + 9)]
    await publish(bus, *events)

    table = await recovered(bus)
    assert rows(table) == of_events(*events)
    assert (rows(table)["p"].calls, rows(table)["p"].service_ms, rows(table)["p"].home_engine) == (3, 300.0, "e0")
    assert rows(table)["q"].state == "ended"


async def test_snapshot_and_events(bus: NatsBus) -> None:
    """What a snapshot knows is not needed any more; what came after it, and what both know, counts once."""
    journal, table = await opened(bus), ProcessTable(SETTINGS)
    first, second, third = life("p", 2), life("q", 2), life("r", 2)
    for events in (first, second):
        await publish(bus, *events)
        for event in events:
            table.recover(event, 0.0)
        await journal.save(table)
    await bus.jetstream().purge_stream(subjects.EVENT_STREAM, seq=len(first) + 1)
    await publish(bus, *third)

    assert rows(await recovered(bus)) == of_events(*first, *second, *third)


async def test_large_snapshot(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot may be larger than a message: it is kept in parts."""
    monkeypatch.setattr(module, "PART_BYTES", 1000)
    journal, table = await opened(bus), ProcessTable(SETTINGS)
    events = [event for number in range(50) for event in life(f"p{number}", 1)]
    for event in events:
        table.recover(event, 0.0)
    await journal.save(table)

    assert rows(await recovered(bus)) == of_events(*events)


@pytest.mark.parametrize("damage", ["head", "part", "no part"])
async def test_unreadable_snapshot(bus: NatsBus, damage: str) -> None:
    """It is set aside, the log says so, and the events that are kept make up for it."""
    journal, table = await opened(bus), ProcessTable(SETTINGS)
    events = life("p", 3)
    await publish(bus, *events)
    for event in events:
        table.recover(event, 0.0)
    await journal.save(table)
    bucket = await bus.bucket(BUCKET, max_bytes=2**20)
    match damage:
        case "head":
            await bucket.put(NAME, b"\xc1")
        case "part":
            await bucket.put((await bus.keys(BUCKET, f"{NAME}.*.0"))[0], b"cut")
        case "no part":
            await bus.purge(BUCKET, f"{NAME}.*.0")
    with capture_logs() as lines:
        again = await recovered(bus)

    assert rows(again) == of_events(*events)
    assert "snapshot set aside" in [line["event"] for line in lines]
    assert (await bucket.get(f"{NAME}.unreadable")).value


async def test_two_writers(bus: NatsBus) -> None:
    """An instance that has not seen the latest snapshot does not overwrite it, and goes on from it the next time."""
    one, other = await opened(bus), await opened(bus)
    first, second = ProcessTable(SETTINGS), ProcessTable(SETTINGS)
    for event in life("p", 1):
        first.recover(event, 0.0)
    for event in life("q", 1):
        second.recover(event, 0.0)
    await one.save(first)
    await other.save(second)
    between = rows(await recovered(bus))
    await other.save(second)

    assert list(between) == ["p"]
    assert list(rows(await recovered(bus))) == ["q"]


async def test_without_jetstream(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be kept the service works all the same, and the log says what that means."""

    async def absent(*_: object, **__: object) -> None:
        raise nats.js.errors.ServiceUnavailableError

    monkeypatch.setattr(bus, "keep", absent)
    monkeypatch.setattr(journal_module, "TRY_S", 0.0)
    with capture_logs() as lines:
        journal = await opened(bus)
        async with remembering(bus, journal, ProcessTable(SETTINGS), LISTENS):
            secret = await journal.secret("mine")

    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["nothing is remembered"]
    assert secret == "mine"


async def test_reading_that_fails(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be read for a while is not written over by what little is known."""
    journal, table = await opened(bus), ProcessTable(SETTINGS)
    for event in life("p", 2):
        table.recover(event, 0.0)
    await journal.save(table)
    monkeypatch.setattr(journal_module, "TRY_S", 0.0)

    async def silent(*_: object, **__: object) -> None:
        raise nats.errors.TimeoutError

    failing, empty = await opened(bus), ProcessTable(SETTINGS)
    with monkeypatch.context() as patched:
        patched.setattr(failing, "_replay", silent)
        await failing.recover(empty)
    for event in life("q", 1):
        empty.recover(event, 0.0)
    await failing.save(empty)

    assert list(rows(await recovered(bus))) == ["p"]


async def test_secret_is_shared(bus: NatsBus) -> None:
    """All lives and instances of a service have the secret of the first one."""
    secrets = [await (await opened(bus)).secret(made) for made in ("first", "second", "third")]

    assert secrets == ["first", "first", "first"]
    assert await (await opened(bus, "other")).secret("own") == "own"


async def test_what_comes_while_it_recovers(bus: NatsBus, nats_url: str) -> None:
    """A service listens before it looks back: what is said meanwhile is known afterwards, once."""
    await opened(bus)
    await publish(bus, *life("p", 2))
    table = ProcessTable(SETTINGS)
    own = await connect(nats_url, name="own")
    async with remembering(own, await opened(own), table, LISTENS):
        await publish(bus, *life("q", 2))
        while (found := rows(table)).keys() != {"p", "q"} or found["q"].calls < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    await own.close()

    assert {name: (row.calls, row.service_ms) for name, row in rows(table).items()} == {
        "p": (2, 200.0),
        "q": (2, 200.0),
    }
    assert rows(await recovered(bus)) == rows(table)


async def test_nothing_piles_up(bus: NatsBus) -> None:
    """Only the latest snapshot is kept, also when a writer died between its parts and its head."""
    journal, table = await opened(bus), ProcessTable(SETTINGS)
    for number in range(5):
        for event in life(f"p{number}", 1):
            table.recover(event, 0.0)
        await journal.save(table)
    bucket = await bus.bucket(BUCKET, max_bytes=2**20)
    await bucket.put(f"{NAME}.0123abcd.0", b"left behind")
    during = await bus.keys(BUCKET, f"{NAME}.*.*")
    await recovered(bus)

    assert len(during) == 2
    assert len(await bus.keys(BUCKET, f"{NAME}.*.*")) == 1
