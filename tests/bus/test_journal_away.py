"""What a service remembers whose bus was away, or whose server does not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from autellix.services import journal as journal_module
from autellix.services.journal import remembering
from autellix.services.nats_bus import connect
from autellix.services.process_table.core import ProcessTable
from autellix.services.process_table.listens import LISTENS
from tests.bus.cuts import Cut
from tests.bus.test_journal import SETTINGS, bus, life, opened, publish, recovered, rows

if TYPE_CHECKING:
    import pytest

    from autellix.services.nats_bus import NatsBus

__all__ = ["bus"]  # a fixture


async def test_events_that_passed_unheard(bus: NatsBus, nats_url: str) -> None:
    """What was said while the connection was away is taken in before anything else, and before the next snapshot."""
    other = await connect(nats_url, name="other")
    journal, table = await opened(bus), ProcessTable(SETTINGS)
    async with remembering(bus, journal, table, LISTENS):
        async with Cut(bus):
            await publish(other, *life("p", 2))
        written = await journal.save(table)
        await publish(other, *life("q", 1))
        async with asyncio.timeout(5):
            while "q" not in rows(table) or not rows(table)["q"].calls:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        known = rows(table)
    again = rows(await recovered(other))
    await other.close()

    assert not written
    for found in (known, again):
        assert {name: (row.calls, row.service_ms, row.home_engine) for name, row in found.items()} == {
            "p": (2, 200.0, "e0"),
            "q": (1, 100.0, "e0"),
        }


async def test_a_snapshot_that_fails_late_does_not_put_off_the_next(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the server does not answer: what counts is how long snapshots take that are written."""
    monkeypatch.setattr(journal_module, "SAVE_S", 0.01)
    journal, tries = await opened(bus), asyncio.Queue[None]()

    async def fail(*_: object) -> bool:
        await asyncio.sleep(0.1)
        tries.put_nowait(None)
        return False

    monkeypatch.setattr(journal, "save", fail)
    async with remembering(bus, journal, ProcessTable(SETTINGS), LISTENS), asyncio.timeout(2):
        for _ in range(3):
            await tries.get()
