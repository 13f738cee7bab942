"""Who gives way to whom when the batch has no free slot (paper Algorithm 1, lines 17 to 21).

Rules:
* A running call leaves the batch only for a waiting one that outranks it: smaller in (priority, `earned_ms`) than the
  other in (priority, `lo_ms`). `earned_ms` is of the queue a call's service brought it to, `lo_ms` of the one it is in;
  they differ after a promotion only. So a promoted call is safe while it runs in the best queue, and displaces whom it
  could before.
* Equals never displace each other. So two calls cannot put each other out in turn: between two changes of queue, for
  the better or the worse, the order is fixed; and it takes a quantum of service, or a promotion, to change queues.
* A promoted call that cannot displace lets nobody behind it do so: the slot would go to who is first in line.
* Whoever calls this asks the budget first (`budget.py`).
* A victim is chosen after its newcomer is known to fit; the walk stops at the first newcomer that does not.
* A demoted call that still runs leaves only if a better one needs its slot: the batch is not rebuilt for its sake.
* A call whose prefill is under way does not give way: what it computed could be lost before it brought a token, and two
  calls with prompts of several steps and short quanta could take turns for ever without either getting on.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

Call = TypeVar("Call")


def displacements(
    newcomers: Iterable[Call],
    yielding: Iterable[Call],
    *,
    outranks: Callable[[Call, Call], bool],
    fits: Callable[[Call], bool | None],
    free_slots: int,
    most: int,
) -> list[Call]:
    """Return the running calls that give way, the worst first.

    Args:
        newcomers: Waiting calls, the best first; no more are taken from it than are looked at.
        yielding: Running calls that may give way, the worst first.
        outranks: Whether the first, a newcomer, may displace the second (`QueuedCall.outranks`).
        fits: Whether a newcomer's KV cache fits beside that of the newcomers asked about before; None: it cannot run
            in this step whatever gives way, and is passed over.
        free_slots: Places in the batch that nobody holds; the first newcomers take them.
        most: At most this many give way in one step.
    """
    victims: list[Call] = []
    worst_first = iter(yielding)
    victim = next(worst_first, None)
    for newcomer in newcomers:
        if free_slots <= 0 and (victim is None or len(victims) == most or not outranks(newcomer, victim)):
            break
        verdict = fits(newcomer)
        if verdict is None:
            continue
        if not verdict:
            break
        if free_slots > 0:
            free_slots -= 1
        elif victim is not None:
            victims.append(victim)
            victim = next(worst_first, None)
    return victims
