"""The ladder: K queues over attained service, each with its quantum (paper section 4.2.2).

Rules:
* Queue i covers [lo_i, hi_i); a service that equals a bound is in the worse queue (the paper's text, not its line 12).
* A queue's quantum is its width: a call of a new program sinks exactly as its attained service grows.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from autellix.engine.policy.call import Queue


@dataclass(frozen=True)
class Ladder:
    """Queue 0 is the best; queue i covers [bounds[i - 1], bounds[i]), the last one reaches to infinity."""

    bounds: tuple[float, ...]
    """Ascending, positive, milliseconds; one less than there are queues."""

    def __post_init__(self) -> None:
        if not all(lower < upper < inf for lower, upper in pairwise((0.0, *self.bounds))):
            raise ValueError(f"bounds must be positive and ascend: {self.bounds}")

    @classmethod
    def doubling(cls, *, first_quantum_ms: float, queues: int) -> "Ladder":
        """Return a ladder whose first bound is `first_quantum_ms` and each next one twice as high."""
        return cls(tuple(first_quantum_ms * 2**bound for bound in range(queues - 1)))

    @property
    def queues(self) -> int:
        """How many queues there are."""
        return len(self.bounds) + 1

    def queue(self, number: int) -> Queue:
        """Return a queue by its number; one beyond the last is the last."""
        number = min(number, len(self.bounds))
        lo_ms = self.bounds[number - 1] if number else 0.0
        hi_ms = self.bounds[number] if number < len(self.bounds) else inf
        return Queue(number, lo_ms, hi_ms - lo_ms)

    def queue_at(self, service_ms: float) -> Queue:
        """Return the queue whose range holds `service_ms`."""
        return self.queue(bisect_right(self.bounds, service_ms))

    def queue_below(self, lo_ms: float) -> Queue:
        """Return the next worse queue than the one that holds `lo_ms`; never one that begins before it.

        A call may stand at a bound of an earlier, taller ladder, beyond this one's last bound: it stays there.
        """
        below = self.queue(bisect_right(self.bounds, lo_ms) + 1)
        return below._replace(lo_ms=max(lo_ms, below.lo_ms))
