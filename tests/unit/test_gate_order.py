"""In which order programs are held: by the policy's rank and by the room they need."""

from tests.unit.gate_world import GateWorld, NoVisits


def full() -> GateWorld:
    """Return a gate with a resident beside which nothing fits."""
    sut = GateWorld(gate=NoVisits)
    sut.call("resident", 88)
    return sut


def test_room_counts_like_service() -> None:
    """The first is whose rank times blocks is least: half the room makes up for twice the service."""
    sut = full()
    for name, prompt, level_ms in (("small", 19, 3.0), ("large", 79, 1.0), ("middle", 39, 1.4)):
        sut.call(name, prompt, level_ms=level_ms)

    assert ["middle", "small", "large"] == sut.held


def test_equals_are_held_in_order_of_arrival() -> None:
    """Where rank times blocks is the same, as of all whose rank is 0, who came first is first."""
    sut = full()
    for name, prompt, level_ms in (("1", 9, 8.0), ("2", 19, 4.0), ("3", 39, 0.0), ("4", 9, 0.0)):
        sut.call(name, prompt, level_ms=level_ms)

    assert ["3", "4", "1", "2"] == sut.held


def test_a_promoted_call_is_ordered_without_its_size() -> None:
    """A large one that was promoted to the rank of small newcomers does not wait behind them for its size."""
    sut = full()
    sut.call("large", 79, level_ms=9.0)
    sut.call("small", 19, level_ms=2.0)
    assert ["small", "large"] == sut.held
    sut.rerank("large", 2.0, promoted=True)
    sut.call("newcomer", 1, level_ms=2.0)

    assert ["large", "newcomer", "small"] == sut.held


def test_a_clients_priority_comes_before_size() -> None:
    """However large, who has a better priority is first."""
    sut = full()
    sut.call("small", 1, level_ms=1.0)
    sut.call("large", 79, level_ms=9.0, priority=-1)

    assert ["large", "small"] == sut.held
