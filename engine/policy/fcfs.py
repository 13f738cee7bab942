"""First come, first served: what stock vLLM does; the baseline."""

from math import inf

from autellix.engine.policy.base import Policy
from autellix.engine.policy.call import Queue, QueuedCall
from autellix.engine.policy.ladder import Ladder
from autellix.schemas.messages import ProgramFacts


class Fcfs(Policy):
    """One queue in order of arrival; nothing is ever displaced."""

    on_ladder = False

    def entry_service_ms(self, program: ProgramFacts) -> float:  # noqa: ARG002 - nothing about the program matters
        """Return 0: all calls are equal."""
        return 0.0

    def enter(self, call: QueuedCall, ladder: Ladder) -> Queue:  # noqa: ARG002 - there is no ladder
        """Return the one queue."""
        return Queue(0, 0.0, inf)
