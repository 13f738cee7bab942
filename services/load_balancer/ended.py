"""The calls that ended lately: one that comes once more is not run again."""

from typing import Final

from autellix.schemas.ids import CallId

ENDED_REMEMBERED: Final = 20_000


class Ended:
    """So many, the oldest go first."""

    def __init__(self) -> None:
        self._calls: dict[CallId, None] = {}

    def __contains__(self, call_id: CallId) -> bool:
        return call_id in self._calls

    def add(self, call_id: CallId) -> None:
        """Remember a call."""
        self._calls[call_id] = None
        if len(self._calls) > ENDED_REMEMBERED:
            del self._calls[next(iter(self._calls))]
