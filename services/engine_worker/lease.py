"""Whether others still take this worker for alive.

It says so by its heartbeats. When none of them was said for as long as others wait, since the process was frozen, the
machine asleep or the bus away, its calls have been given to others or have ended: what it still has to say of them is
not true any more. Time is that of the kernel since it was started, suspended or not.
"""

import time


def now_s() -> float:
    """Return the time, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """It lasts `silence_s` seconds from each heartbeat."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._renewed_at_s = now_s()

    def renew(self) -> None:
        """Note that a heartbeat is said."""
        self._renewed_at_s = now_s()

    @property
    def has_lapsed(self) -> bool:
        """Whether others take this worker for dead."""
        return now_s() - self._renewed_at_s > self._silence_s
