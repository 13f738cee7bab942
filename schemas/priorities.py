"""How urgent a program is at the service it has attained, as the process table learns it from programs that ended."""

import msgspec

from autellix.schemas.base import Message


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """The rank of a program by its attained service, in buckets; the last one never ends."""

    starts_ms: tuple[float, ...]
    """Attained service at which each bucket begins: 0, then ascending."""
    ranks_ms: tuple[float, ...]
    """By how the Gittins index is in each bucket: the smaller goes first."""
    grows: bool
    """Whether a program that has run for long has longer to go than a new one."""


class Priorities(Message, tag="priorities", frozen=True, kw_only=True):
    """Process table to every engine worker: what is known of each kind of program. Each message replaces the last."""

    pooled: RankTable | None = None
    """Of all programs together, for kinds of which too little is known."""
    kinds: dict[str, RankTable] = msgspec.field(default_factory=dict)

    @property
    def tables(self) -> list[RankTable]:
        """Return those of the kinds; of all programs together, while no kind is known well enough."""
        return list(self.kinds.values()) or ([self.pooled] if self.pooled else [])
