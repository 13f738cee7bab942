"""The scheduling policies: pure code, time passed in; one file a policy, one line here.

A policy says by what attained service a program's call enters the ladder. Everything else (quanta, demotion, promotion
of the starving) is common and lives in `queues.py`.
"""

from collections.abc import Callable

from autellix.engine.policy.atlas import Atlas
from autellix.engine.policy.base import Policy
from autellix.engine.policy.fcfs import Fcfs
from autellix.engine.policy.mlfq import Mlfq
from autellix.engine.policy.plas import Plas

POLICIES: dict[str, Callable[[], Policy]] = {
    "fcfs": Fcfs,
    "mlfq": Mlfq,
    "plas": Plas,
    "atlas": Atlas,
}


def policy_named(name: str) -> Policy:
    """Return a new policy.

    Raises:
        ValueError: for a name that no policy has; the text lists those that exist.
    """
    try:
        return POLICIES[name]()
    except KeyError:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(POLICIES)}") from None


__all__ = ["POLICIES", "Policy", "policy_named"]
