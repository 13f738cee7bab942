"""Learns from programs that ended how much service those of their kind need; `gittins.py` makes the ranks of it.

Rules:
* The latest 1,024 programs of each kind are remembered, and 256 kinds; the kind of which none ended for longest goes
  first.
* A kind has ranks of its own once 30 of its programs are known. Until then it has those of all programs together.
* Ranks are fitted anew every 32 programs.
* A program that still runs says nothing. So the first ranks come from the shorter programs; they are corrected as the
  longer ones end.
"""

import msgspec

from autellix.engine.policy.gittins import rank_table
from autellix.schemas.messages import Priorities, RankTable

KNOWN_MIN = 30
REMEMBERED = 1024
FIT_EVERY = 32
KINDS_REMEMBERED = 256
KINDS_TOLD = 64
"""Kinds whose ranks go out: those of which a program ended last. All of it must fit into one datagram."""


class Sample(msgspec.Struct):
    """Programs that ended, and what follows from them."""

    services_ms: list[float] = []
    """Of the latest, in order of their ends."""
    since_fit: int = 0
    table: RankTable | None = None

    def add(self, service_ms: float) -> bool:
        """Take in a program that ended and tell whether the ranks changed."""
        self.services_ms.append(service_ms)
        del self.services_ms[:-REMEMBERED]
        self.since_fit += 1
        if len(self.services_ms) < KNOWN_MIN or (self.table and self.since_fit < FIT_EVERY):
            return False
        self.table, self.since_fit = rank_table(self.services_ms), 0
        return True


class Learnt(msgspec.Struct):
    """All that is remembered: it can be stored, and learning goes on from it."""

    pooled: Sample = msgspec.field(default_factory=Sample)
    kinds: dict[str, Sample] = {}
    """The kind of which a program ended last comes last."""

    def program_ended(self, kind: str, service_ms: float) -> bool:
        """Take in a program that ended and tell whether any ranks changed; one that had no service says nothing."""
        if service_ms <= 0:
            return False
        sample = self.kinds[kind] = self.kinds.pop(kind, Sample())
        if len(self.kinds) > KINDS_REMEMBERED:
            del self.kinds[next(iter(self.kinds))]
        changed = [sample.add(service_ms), self.pooled.add(service_ms)]
        return any(changed)

    def priorities(self) -> Priorities:
        """Return the ranks as engines are told them."""
        tables = {kind: sample.table for kind, sample in self.kinds.items() if sample.table}
        return Priorities(pooled=self.pooled.table, kinds=dict(list(tables.items())[-KINDS_TOLD:]))
