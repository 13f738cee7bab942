"""Shortest remaining processing time over programs: needs to know the future, so it exists in simulation only."""

from collections.abc import Callable
from math import inf

from autellix.engine.policy.base import Policy
from autellix.engine.policy.call import Queue, QueuedCall
from autellix.engine.policy.ladder import Ladder
from autellix.schemas.ids import ProgramId


class Srpt(Policy):
    """A call ranks by what its program still needs when the call arrives (paper Figures 18 and 20).

    Args:
        remaining_ms: The service a program still needs; only a simulator can tell.
    """

    on_ladder = False

    def __init__(self, remaining_ms: Callable[[ProgramId], float]) -> None:
        self._remaining_ms = remaining_ms

    def enter(self, call: QueuedCall, ladder: Ladder) -> Queue:  # noqa: ARG002 - each amount is a queue of its own
        """Return the queue of those with as much left to do."""
        return Queue(0, self._remaining_ms(call.program_id), inf)
