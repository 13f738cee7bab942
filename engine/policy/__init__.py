"""The scheduling policies: pure code, time passed in; one file a policy, one line here.

A policy says by what attained service a program's call enters the ladder. Everything else (quanta, demotion, promotion
of the starving) is common and lives in `queues.py`; who gives way to whom is in `displacement.py`.
"""

from collections.abc import Callable

from autellix.engine.policy.atlas import Atlas
from autellix.engine.policy.auto import Auto
from autellix.engine.policy.base import Policy
from autellix.engine.policy.fcfs import Fcfs
from autellix.engine.policy.fitting import LadderFitter
from autellix.engine.policy.gate import Gate
from autellix.engine.policy.gittins import Gittins
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.mlfq import Mlfq
from autellix.engine.policy.plain_gate import PlainGate
from autellix.engine.policy.plas import Plas
from autellix.engine.policy.queues import CallQueues
from autellix.engine.policy.room import Cache

POLICIES: dict[str, Callable[[], Policy]] = {
    "fcfs": Fcfs,
    "mlfq": Mlfq,
    "plas": Plas,
    "atlas": Atlas,
    "gittins": Gittins,
    "auto": Auto,
}
GATES: dict[str, type[Gate] | None] = {"off": None, "fair": Gate, "plain": PlainGate}


def policy_named(name: str) -> Policy:
    """Return a new policy.

    Raises:
        ValueError: for a name that no policy has; the text lists those that exist.
    """
    try:
        return POLICIES[name]()
    except KeyError:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(POLICIES)}") from None


def call_queues(policy: Policy, *, first_quantum_ms: float, queues: int, beta: float, fit_ladder: bool) -> CallQueues:
    """Return the queues of one engine, empty.

    Args:
        policy: Who goes first.
        first_quantum_ms: Upper bound of the best queue, to begin with; each next bound is twice as high.
        queues: How many, to begin with.
        beta: Waited over attained time at which a call is promoted.
        fit_ladder: Whether the ladder follows what ends.
    """
    ladder = Ladder.doubling(first_quantum_ms=first_quantum_ms, queues=queues)
    fitter = LadderFitter(first_quantum_ms=first_quantum_ms) if fit_ladder and policy.on_ladder else None
    return CallQueues(policy, ladder, beta=beta, fitter=fitter)


def default_gate(policy: str) -> str:
    """Return the gate that goes with a policy if nothing is said: `auto` is an order and a gate, the others orders."""
    return "fair" if policy == "auto" else "off"


def gate_named(name: str, *, blocks: int, block_tokens: int, cache: Cache, tier_blocks: int = 0) -> Gate | None:
    """Return the gate of one engine, or None if it has none.

    Args:
        name: One of `GATES`.
        blocks: Blocks of KV cache that the engine has.
        block_tokens: Tokens in a block.
        cache: The engine's prefix cache.
        tier_blocks: Blocks that a tier in CPU memory has room for, copies of the engine's own among them; 0: none.

    Raises:
        ValueError: for a name that no gate has; the text lists those that exist.
    """
    if name not in GATES:
        raise ValueError(f"unknown gate {name!r}; known: {', '.join(GATES)}")
    gate = GATES[name]
    return gate(blocks, block_tokens, cache, tier_blocks) if gate else None


__all__ = [
    "GATES",
    "POLICIES",
    "CallQueues",
    "Gate",
    "Policy",
    "call_queues",
    "default_gate",
    "gate_named",
    "policy_named",
]
