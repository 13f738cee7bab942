"""Whether others still take this worker for alive.

It says so by its heartbeats. When none of them was said for as long as others wait, since the process was frozen, the
machine asleep or the bus away, its calls have been given to others or have ended: what it still has to say of them is
not true any more. Time is that of the kernel since it was started, suspended or not.

A heartbeat was said when the bus has confirmed that it has it, and as of when it was sent: a network that swallows
packets takes it all the same.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable


def now_s() -> float:
    """Return the time, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Alive:
    """For `silence_s` seconds from each heartbeat.

    Args:
        silence_s: How long others wait.
        confirmed: Returns when the bus has all that was said before.
    """

    def __init__(self, silence_s: float, confirmed: Callable[[], Awaitable[None]]) -> None:
        self._silence_s = silence_s
        self._confirmed = confirmed
        self._confirming: asyncio.Task[None] | None = None
        self._renewed_at_s = now_s()

    def renew(self) -> None:
        """Be taken for alive from now on."""
        self._renewed_at_s = now_s()

    def said(self) -> None:
        """Note that a heartbeat was sent; of those on their way at once one is waited for."""
        if self._confirming is None or self._confirming.done():
            self._confirming = asyncio.create_task(self._confirm(now_s()))

    async def _confirm(self, sent_at_s: float) -> None:
        with contextlib.suppress(Exception):  # the connection was lost with it; a later one may get through
            async with asyncio.timeout(self._silence_s / 2):
                await self._confirmed()
            self._renewed_at_s = max(self._renewed_at_s, sent_at_s)

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._confirming:
            self._confirming.cancel()

    @property
    def has_lapsed(self) -> bool:
        """Whether others take this worker for dead."""
        return now_s() - self._renewed_at_s > self._silence_s
