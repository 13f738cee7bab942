"""Which of several instances of a service is the active one: what is decided, without I/O.

Rules:
* One key of the bucket says who is active. It is replaced only by who has seen its latest revision (compare-and-set).
* The holder renews it. One that waits takes it when it was given back, when it did not change for `LAPSE_S` by the own
  clock of who waits, or when nobody is there any more where its holder listens.
* While the bus was away nobody could renew anything: that time does not count, nor does a holder that has not come back
  yet count as gone.
* A holder is sure of it for `SURE_S` from when it last asked, less than others wait, and on one connection. Before it
  says another word after that, it asks.
* What cannot be asked is taken for unchanged: where JetStream is away nobody else can have taken it either.
"""

from math import inf
from typing import Final, NamedTuple

import msgspec

RENEW_S: Final = 1.0
SURE_S: Final = 4.0
LAPSE_S: Final = 5.0
BACK_S: Final = 2.0
"""Within this time of the bus's return everybody has come back to it."""


class LostLeaseError(Exception):
    """Another instance is active; this one must not say another word."""


class Lease(msgspec.Struct, frozen=True):
    """What the key says."""

    holder: str = ""
    """Who is active; empty: it was given back."""
    inbox: str = ""
    """Where the holder listens for as long as it has a connection."""


async def always() -> bool:
    """Tell that what needs no lease may speak."""
    return True


def encoded(lease: Lease) -> bytes:
    """Return a lease as the key holds it."""
    return msgspec.msgpack.encode(lease)


def decoded(data: bytes) -> Lease:
    """Return the lease that the key holds; what cannot be read is nobody's."""
    try:
        return msgspec.msgpack.decode(data, type=Lease)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Lease()


class Seen(NamedTuple):
    """One look at the key."""

    lease: Lease
    revision: int
    heard: bool
    """Whether anybody is there where the holder listens."""
    reconnects: int
    """How often the own connection to the bus was lost and came back."""


class Lookout:
    """What one instance that waits has seen of the key."""

    def __init__(self) -> None:
        self._last: Seen | None = None
        self._since_s = inf
        """Since when the key is as it was last seen, on this connection."""
        self._back_at_s = -inf
        """When the bus was last seen to be back."""

    def may_take(self, seen: Seen, now_s: float) -> bool:
        """Take in a look, at a time of a clock that nobody sets, and tell whether the lease may be taken."""
        if self._last and self._last.reconnects != seen.reconnects:
            self._back_at_s = now_s
        if not self._last or (self._last.revision, self._last.reconnects) != (seen.revision, seen.reconnects):
            self._since_s = now_s
        self._last = seen
        if not seen.lease.holder:
            return True
        if not seen.heard and now_s - self._back_at_s >= BACK_S:
            return True
        return now_s - self._since_s >= LAPSE_S


class Tenure:
    """How sure a holder is that it still is one."""

    def __init__(self) -> None:
        self._asked_at_s = -inf
        self._reconnects = -1

    def confirmed(self, asked_at_s: float, reconnects: int) -> None:
        """Note that the lease was its own, asked at that time and on that connection."""
        self._asked_at_s, self._reconnects = asked_at_s, reconnects

    def sure(self, now_s: float, reconnects: int) -> bool:
        """Tell whether nobody else can have taken it yet."""
        return reconnects == self._reconnects and now_s - self._asked_at_s < SURE_S
