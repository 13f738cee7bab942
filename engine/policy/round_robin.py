"""Round robin over calls, each for one quantum in turn: a bound, in simulation only (paper Figures 18 and 20)."""

from autellix.engine.policy.base import Policy
from autellix.engine.policy.call import Queue, QueuedCall
from autellix.engine.policy.ladder import Ladder


class RoundRobin(Policy):
    """Whoever arrives, or has used up its quantum, goes behind everybody else.

    A turn is a queue of its own, later turns are worse: so a running call gives way to a waiting one exactly when its
    quantum ended after the other began to wait.

    Args:
        quantum_ms: The service of one turn.
    """

    on_ladder = False

    def __init__(self, quantum_ms: float) -> None:
        self._quantum_ms = quantum_ms
        self._turns = 0

    def enter(self, call: QueuedCall, ladder: Ladder) -> Queue:  # noqa: ARG002 - turns, not service, make the order
        """Return the newest turn."""
        self._turns += 1
        return Queue(0, float(self._turns), self._quantum_ms)

    def demote(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the newest turn."""
        return self.enter(call, ladder)
