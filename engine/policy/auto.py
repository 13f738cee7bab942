"""The default: by attained service or by the Gittins index, whichever fits the programs that are seen.

Rules:
* Where every kind of program that is known has the longer to go the longer it has run, the least attained service goes
  first, as in ATLAS. The index would say the same, but it is fitted to few programs, and the ladder needs none.
* As soon as one kind is known where it is the other way round, the index decides.
* While nothing is known it is ATLAS.
"""

from autellix.engine.policy.atlas import Atlas
from autellix.engine.policy.call import Queue, QueuedCall
from autellix.engine.policy.gittins import Gittins
from autellix.engine.policy.ladder import Ladder
from autellix.schemas.messages import Priorities, ProgramFacts


class Auto(Gittins):
    """ATLAS or Gittins. A call that is in a queue of the one goes on by the other when it next leaves a queue."""

    def __init__(self) -> None:
        super().__init__()
        self._atlas = Atlas()
        self._by_index = False

    @property
    def order(self) -> str:
        """Return which of the two it goes by now."""
        return Gittins.__name__.lower() if self._by_index else self._atlas.order

    def learn(self, priorities: Priorities) -> None:
        """Go by these tables from now on."""
        super().learn(priorities)
        self._by_index = not all(table.grows for table in priorities.tables)

    def entry_service_ms(self, program: ProgramFacts) -> float:
        """Return what the program has attained on the scale that counts now."""
        return super().entry_service_ms(program) if self._by_index else self._atlas.entry_service_ms(program)

    def enter(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the queue that a call enters on arrival."""
        return super().enter(call, ladder) if self._by_index else self._atlas.enter(call, ladder)

    def demote(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the queue that a call enters when the quantum of its queue is used up."""
        return super().demote(call, ladder) if self._by_index else self._atlas.demote(call, ladder)

    def promote(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the queue that a call enters when it has waited too long."""
        return super().promote(call, ladder) if self._by_index else self._atlas.promote(call, ladder)

    def earned_ms(self, call: QueuedCall) -> float:
        """Return where a call would be without its promotions."""
        return super().earned_ms(call) if self._by_index else self._atlas.earned_ms(call)
