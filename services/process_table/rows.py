"""What the process table keeps of one program, and how all of it is brought back."""

import msgspec

from autellix.engine.policy.learning import Learnt
from autellix.schemas.base import Message
from autellix.schemas.codec import Decoder
from autellix.schemas.identity import BEGUN, NOBODY
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.table import ProgramRecord


class Row(msgspec.Struct, kw_only=True):
    """One program's record and what is needed to keep it."""

    record: ProgramRecord
    live: dict[CallId, float] = {}
    """Live calls, and the critical path each inherited."""
    busy_since_ms: float = 0.0
    home_since_ms: float = 0.0
    has_taught: bool = False
    announced_at_ms: float | None = None
    """When the program began, by its own event; a named one may have been there before, and ended."""

    began_anew: bool = False
    """Whether another life of it, which is over, was forgotten."""

    @property
    def is_named(self) -> bool:
        """Whether a client chose its name: then it may come again."""
        return self.record.source not in (BEGUN, NOBODY)

    def settle(self, now_ms: float) -> ProgramRecord:
        """Return the record with its busy time counted up to now."""
        if self.live and now_ms > self.busy_since_ms:
            self.record.busy_ms += now_ms - self.busy_since_ms
            self.busy_since_ms = now_ms
        return self.record


class TableSnapshot(Message, tag="table_snapshot", frozen=True, kw_only=True):
    """All that the process table knows, but for how many tokens its programs' prompts have."""

    rows: list[Row]
    """Oldest program first."""
    ended: list[ProgramId]
    """Those of the rows that are over, in the order in which they ended."""
    gone: dict[ProgramId, float]
    ended_calls: list[CallId]
    learnt: Learnt


SNAPSHOTS: Decoder[TableSnapshot] = Decoder(TableSnapshot)
