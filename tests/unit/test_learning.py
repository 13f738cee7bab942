"""What is learnt from programs that ended: when it is enough, what is forgotten, and that it can be kept."""

import msgspec
import pytest

from autellix.engine.policy.gittins import rank_table
from autellix.engine.policy.learning import FIT_EVERY, KINDS_REMEMBERED, KINDS_TOLD, KNOWN_MIN, REMEMBERED, Learnt
from autellix.schemas.messages import Priorities


def learnt(*programs: tuple[str, float, int]) -> Learnt:
    """Return what is learnt of programs: their kind, their service, and how many ended one after the other."""
    found = Learnt()
    for kind, service_ms, count in programs:
        for _ in range(count):
            found.program_ended(kind, service_ms)
    return found


def test_too_little_is_known() -> None:
    """Before thirty programs ended there are no ranks at all."""
    assert Priorities() == learnt(("a", 100.0, KNOWN_MIN - 1)).priorities()


def test_pooled_until_a_kind_is_known() -> None:
    """Programs of all kinds together make ranks before any kind has thirty."""
    some = learnt(("a", 100.0, KNOWN_MIN // 2), ("b", 200.0, KNOWN_MIN // 2)).priorities()
    more = learnt(("b", 200.0, 15), ("a", 100.0, KNOWN_MIN)).priorities()

    assert Priorities(pooled=rank_table([100.0] * 15 + [200.0] * 15)) == some
    assert {"a": rank_table([100.0] * 30)} == more.kinds


def test_change_is_told_when_it_comes() -> None:
    """The ranks change with the thirtieth program, and then with every so many."""
    found = Learnt()
    changes = [number for number in range(1, 200) if found.program_ended("a", 100.0)]

    assert list(range(KNOWN_MIN, 200, FIT_EVERY)) == changes


def test_the_latest_count() -> None:
    """A kind that changes its ways is soon known by the new ones; what is remembered is bounded."""
    found = learnt(("a", 1e6, REMEMBERED), ("a", 100.0, REMEMBERED + FIT_EVERY))

    assert rank_table([100.0] * REMEMBERED) == found.priorities().kinds["a"]
    assert [100.0] * REMEMBERED == found.kinds["a"].services_ms == found.pooled.services_ms


def test_kinds_are_bounded() -> None:
    """Of many kinds those of which a program ended last are remembered, and the last of these are told."""
    names = [f"k{number}" for number in range(KINDS_REMEMBERED)]
    found = learnt(("old", 1.0, KNOWN_MIN), *((name, 1.0, KNOWN_MIN) for name in names[1:]))
    found.program_ended("old", 1.0)
    found.program_ended(names[0], 1.0)

    assert [*names[2:], "old", names[0]] == list(found.kinds)
    assert [*names[2:], "old"][-KINDS_TOLD:] == list(found.priorities().kinds)


@pytest.mark.parametrize("service_ms", [0.0, -1.0])
def test_program_without_service(service_ms: float) -> None:
    """A program that never ran says nothing about its kind."""
    assert Learnt() == learnt(("a", service_ms, 100))


def test_all_of_it_can_be_kept() -> None:
    """What is learnt survives being stored, and learning goes on from there."""
    before = learnt(("a", 100.0, 40), ("b", 5.0, 3))
    after = msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=Learnt)

    assert before == after
    assert before.program_ended("a", 7.0) == after.program_ended("a", 7.0)
    assert before == after
