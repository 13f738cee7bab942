"""The ladder: K queues over attained service, each with its quantum (paper section 4.2.2)."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf


@dataclass(frozen=True)
class Ladder:
    """Queue 0 is the best; queue i covers [bounds[i - 1], bounds[i]), the last one reaches to infinity."""

    bounds: tuple[float, ...]
    """Ascending, positive, milliseconds; one less than there are queues."""

    def __post_init__(self) -> None:
        if not all(lower < upper for lower, upper in pairwise((0.0, *self.bounds))):
            raise ValueError(f"bounds must be positive and ascend: {self.bounds}")

    @classmethod
    def doubling(cls, *, first_quantum_ms: float, queues: int) -> "Ladder":
        """Return a ladder whose first queue is `first_quantum_ms` wide and each next one twice as wide."""
        return cls(tuple(accumulate(first_quantum_ms * 2**queue for queue in range(queues - 1))))

    @property
    def queues(self) -> int:
        """How many queues there are."""
        return len(self.bounds) + 1

    def queue_of(self, service_ms: float) -> int:
        """Return the queue whose range holds `service_ms`; a bound belongs to the worse queue (the paper's text)."""
        return bisect_right(self.bounds, service_ms)

    def quantum_ms(self, queue: int) -> float:
        """Return the service a call may have in `queue` before it is demoted: the queue's width."""
        if queue >= len(self.bounds):
            return inf
        return self.bounds[queue] - (self.bounds[queue - 1] if queue else 0.0)
