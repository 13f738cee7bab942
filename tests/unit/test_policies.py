"""Which attained service each policy lets a call enter with."""

import pytest

from autellix.engine.policy import GATES, POLICIES, Policy, default_gate, gate_named, policy_named
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.engine.policy.round_robin import RoundRobin
from autellix.engine.policy.srpt import Srpt
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts
from tests.unit.gate_world import Cache

A, B, C, P = CallId("a"), CallId("b"), CallId("c"), ProgramId("p")
PROGRAM = ProgramFacts(service_ms=700.0, critical_path_ms=300.0, waiting_ms=50.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("fcfs", 0.0), ("mlfq", 0.0), ("plas", 700.0), ("atlas", 300.0), ("gittins", 700.0), ("auto", 300.0)],
)
def test_entry_service(name: str, expected: float) -> None:
    """PLAS and Gittins go by the sum, ATLAS by the critical path, as Auto at first, the others by nothing."""
    assert expected == policy_named(name).entry_service_ms(PROGRAM)


def test_only_fcfs_has_one_queue() -> None:
    """First come, first served is the one policy of an engine without a ladder."""
    assert [name for name in POLICIES if not policy_named(name).on_ladder] == ["fcfs"]


def batch_order(policy: Policy, *arrivals: tuple[CallId, ProgramId]) -> list[CallId]:
    """Return these calls, all waiting, in the order of a policy."""
    queues = CallQueues(policy, Ladder(()), beta=8.0)
    calls = [queues.add(call_id, program_id, PROGRAM, 0.0) for call_id, program_id in arrivals]
    return [call.call_id for call in sorted(calls, key=lambda call: call.rank)]


def test_srpt() -> None:
    """The shortest remaining program goes first, its service so far notwithstanding."""
    remaining = {"long": 9000.0, "short": 10.0}
    policy = Srpt(lambda program_id: remaining[program_id])

    assert batch_order(policy, (A, ProgramId("long")), (B, ProgramId("short"))) == [B, A]


def test_round_robin() -> None:
    """A call whose turn is over goes behind those that waited, and ahead of those that come later."""
    queues = CallQueues(RoundRobin(10.0), Ladder(()), beta=8.0)
    one, two = (queues.add(call_id, P, PROGRAM, 0.0) for call_id in (A, B))
    queues.start(A, 0.0)
    queues.join(A)

    assert queues.charge(9.0) == []
    assert one.level < two.level
    assert queues.charge(1.0) == [one]
    assert two.level < one.level < queues.add(C, P, PROGRAM, 10.0).level


def test_unknown_policy() -> None:
    """The error for an unknown name lists the known ones."""
    with pytest.raises(ValueError, match="unknown policy 'best'; known: fcfs, mlfq, plas, atlas, gittins, auto"):
        policy_named("best")


def test_gates() -> None:
    """`auto` is an order and a gate; the other policies have a gate only if one is asked for."""
    assert {"fair": ["auto"], "off": ["fcfs", "mlfq", "plas", "atlas", "gittins"]} == {
        gate: [name for name in POLICIES if default_gate(name) == gate] for gate in ("fair", "off")
    }
    assert {"off", "fair", "plain"} == set(GATES)


def test_unknown_gate() -> None:
    """The error for an unknown gate lists the known ones."""
    with pytest.raises(ValueError, match="unknown gate 'wide'; known: off, fair, plain"):
        gate_named("wide", blocks=1, block_tokens=1, cache=Cache())
