"""What a policy is: where on the ladder a call enters, and where it goes when its quantum is used up."""

from autellix.engine.policy.call import Queue, QueuedCall
from autellix.engine.policy.ladder import Ladder
from autellix.schemas.messages import Priorities, ProgramFacts


class Policy:
    """Orders by attained service on the ladder (paper section 4.2.2); a subclass says whose service.

    A policy that needs no ladder overrides `enter` and `demote` instead.
    """

    on_ladder = True
    """Whether calls sink by service, and rise when they starve; else the ladder means nothing to them."""

    @property
    def order(self) -> str:
        """Return the name of the policy whose order this is."""
        return type(self).__name__.lower()

    def entry_service_ms(self, program: ProgramFacts) -> float:
        """Return the attained service by which a call of `program` finds its first queue."""
        raise NotImplementedError

    def enter(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the queue that a call enters on arrival."""
        return ladder.queue_at(self.entry_service_ms(call.program))

    def demote(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the queue that a call enters when the quantum of its queue is used up."""
        return ladder.queue_below(call.lo_ms)

    def promote(self, call: QueuedCall, ladder: Ladder) -> Queue:  # noqa: ARG002 - a policy may go by the call
        """Return the queue that a call enters when it has waited too long: that of new programs."""
        return ladder.queue(0)

    def earned_ms(self, call: QueuedCall) -> float:
        """Return where a call that has just changed queues by service would be without its promotions: its bound.

        On the ladder that is the worst queue it was in.
        """
        return max(call.earned_ms, call.lo_ms)

    def learn(self, priorities: Priorities) -> None:
        """Take in what was learnt of programs that ended; no call moves by it, and most policies have no use for it."""
