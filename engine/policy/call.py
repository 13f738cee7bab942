"""One call in an engine, as the policy sees it."""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts

Level = tuple[int, float]
"""The client's priority, and the lower bound of a queue (attained service, ms): the smaller is strictly better."""
Rank = tuple[int, float, int]
"""Priority, lower bound of the queue, and place in it: the smaller runs first."""


class Queue(NamedTuple):
    """One queue of the ladder."""

    number: int
    """0 is the best; with `gittins`, the youngest."""
    lo_ms: float
    """Attained service at which it begins, or what else the policy goes by; this, not the number, orders calls, so that
    they stay in order when the ladder is fitted anew."""
    quantum_ms: float
    """Service a call may have in it before it is demoted."""


@dataclass(eq=False, slots=True)
class QueuedCall:
    """One call, waiting or running."""

    call_id: CallId
    program_id: ProgramId
    program: ProgramFacts
    """What the program had attained and waited when the call arrived."""
    waiting_since_ms: float | None
    """None while it runs."""
    priority: int = 0
    """As in the OpenAI body: the smaller goes first, whatever the policy says."""
    order: str = ""
    """By which policy it came to its queue."""
    entry_ms: float = 0.0
    """Attained service by which it found its first queue."""
    lo_ms: float = 0.0
    earned_ms: float = 0.0
    """Bound of the queue where it would be if it had not been promoted (`Policy.earned_ms`)."""
    place: int = 0
    is_promoted: bool = False
    """Whether it came to its queue by waiting, not by service."""
    due_ms: float = inf
    """Reading of the engine's service clock at which its quantum is used up, while it is in the batch; what is left of
    the quantum, while it is not."""
    in_batch_since_ms: float | None = None
    """Reading of the engine's service clock up to which it is charged; None while it is not in the batch."""
    service_ms: float = 0.0
    wait_ms: float = 0.0
    window_service_ms: float = 0.0
    window_wait_ms: float = 0.0
    preemptions: int = 0
    queues: list[int] = field(default_factory=list)
    """Numbers of the queues it was in, in order."""
    starvation_note: int | None = None
    """The one note of when it will starve that holds; None while it cannot."""
    quantum_note: int | None = None
    """The one note of when its quantum will be used up that holds; None while it is not in the batch."""

    @property
    def level(self) -> Level:
        """What another call must be strictly better than to displace it."""
        return self.priority, self.lo_ms

    def outranks(self, other: "QueuedCall") -> bool:
        """Tell whether this call, waiting, may displace the other: by the service it attained, promoted or not."""
        return (self.priority, self.earned_ms) < other.level

    @property
    def rank(self) -> Rank:
        """Its place among all calls; the smaller runs first."""
        return self.priority, self.lo_ms, self.place
