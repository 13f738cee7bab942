"""A connection that is lost, and comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autellix.services.nats_bus import NatsBus


class Cut:
    """Cuts a connection; it comes back by itself."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus
        self._before = bus.reconnects

    async def __aenter__(self) -> None:
        """Return when it is lost."""
        transport = self._bus._client._transport
        assert transport is not None
        transport.close()
        async with asyncio.timeout(10):
            while self._bus.connected:  # noqa: ASYNC110 - nats-py tells it no other way, here and below
                await asyncio.sleep(0.005)

    async def __aexit__(self, *_: object) -> None:
        """Return when it is back."""
        async with asyncio.timeout(10):
            while self._bus.reconnects == self._before or not self._bus.connected:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
