"""Calls that were given up and whose end is not heard: nobody has them any more, so that it is said here.

Their engine may have died with the news, or the bus. Without an end they would be live for ever, and so their programs.
Patience is counted in ticks of this service, as in `unrouted.py`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import CallCancelled

PATIENCE_TICKS = 30
"""Fifteen seconds at the runner's pace; an engine aborts a call at once."""
COUNT_MAX = 100_000


class Orphan(NamedTuple):
    """A call that was given up."""

    call_id: CallId
    program_id: ProgramId
    thread_id: ThreadId


class Orphans:
    """Those whose ends are waited for, the oldest first."""

    def __init__(self) -> None:
        self._ticks = 0
        self._waiting: dict[CallId, tuple[Orphan, int]] = {}

    def add(self, orphan: Orphan) -> None:
        """Expect the end of a call that was given up."""
        if len(self._waiting) < COUNT_MAX:
            self._waiting.setdefault(orphan.call_id, (orphan, self._ticks))

    def __iter__(self) -> Iterator[Orphan]:
        return (orphan for orphan, _ in self._waiting.values())

    def settle(self, call_id: CallId) -> None:
        """Note that a call has ended."""
        self._waiting.pop(call_id, None)

    def tick(self, now_ms: float) -> Iterator[CallCancelled]:
        """Yield the ends of those that nobody has spoken of for too long."""
        self._ticks += 1
        for orphan, since in list(self._waiting.values()):
            if self._ticks - since < PATIENCE_TICKS:
                return
            del self._waiting[orphan.call_id]
            yield CallCancelled(**orphan._asdict(), at_ms=now_ms, arrival_at_ms=now_ms, reason="nobody had it any more")
