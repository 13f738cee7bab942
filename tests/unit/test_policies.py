"""Which attained service each policy lets a call enter with."""

import pytest

from autellix.engine.policy import POLICIES, policy_named
from autellix.schemas.messages import ProgramFacts

PROGRAM = ProgramFacts(service_ms=700.0, critical_path_ms=300.0, waiting_ms=50.0)


@pytest.mark.parametrize(("name", "expected"), [("fcfs", 0.0), ("mlfq", 0.0), ("plas", 700.0), ("atlas", 300.0)])
def test_entry_service(name: str, expected: float) -> None:
    """PLAS goes by the sum, ATLAS by the critical path, the others by nothing of the program."""
    assert expected == policy_named(name).entry_service_ms(PROGRAM)


def test_only_fcfs_has_one_queue() -> None:
    """First come, first served is the one policy without a ladder."""
    assert [name for name in POLICIES if policy_named(name).one_queue] == ["fcfs"]


def test_unknown_policy() -> None:
    """The error for an unknown name lists the known ones."""
    with pytest.raises(ValueError, match="unknown policy 'best'; known: fcfs, mlfq, plas, atlas"):
        policy_named("best")
