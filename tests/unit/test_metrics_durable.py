"""What instances of the service of durable calls say becomes numbers that only grow, whoever dies."""

from __future__ import annotations

from typing import Any

from autellix.schemas.messages import DurableLoad
from autellix.services.metrics.durable import FORGET_MS, DurableNumbers
from autellix.services.metrics.numbers import LABELS_MAX

SILENCE_MS = 5000.0


def load(instance: str, **changed: Any) -> DurableLoad:
    """Return a heartbeat."""
    said = {"available": True, "pending": 0, "trying": 0, "tries": 0, "finished": 0, "failed": 0, "at_ms": 0.0}
    return DurableLoad(instance=instance, **{**said, **changed})


def test_counts_of_instances_add_up() -> None:
    """Two instances count together; a report that is heard again, or late, adds nothing."""
    sut = DurableNumbers(SILENCE_MS)
    for heard in (
        load("a", tries=3, finished=2),
        load("b", tries=4, finished=1, failed=1),
        load("a", tries=5, finished=4),
        load("a", tries=5, finished=4),
        load("a", tries=3, finished=2),
    ):
        sut.reported(heard, 0.0)

    assert sut.tries == 9
    assert dict(sut.results.by_label) == {"finished": 5, "failed": 1}


def test_who_starts_anew_counts_on() -> None:
    """An instance that dies takes nothing away, and the one in its place begins at nothing."""
    sut = DurableNumbers(SILENCE_MS)
    sut.reported(load("a", tries=7, finished=7), 0.0)
    sut.tick(FORGET_MS + 1)
    sut.reported(load("again", tries=2, finished=1), FORGET_MS + 1)

    assert (sut.tries, sut.results.by_label["finished"]) == (9, 8)


def test_only_who_reports_is_there() -> None:
    """What is so now is told by those that reported lately: pending calls, of which all say the same, by the latest."""
    sut = DurableNumbers(SILENCE_MS)
    sut.reported(load("silent", pending=50, trying=9), 0.0)
    sut.reported(load("a", pending=12, trying=3), SILENCE_MS + 1)
    sut.reported(load("b", pending=11, trying=2, available=False), SILENCE_MS + 1)

    assert sut.gauges(SILENCE_MS + 1) == {"up": 1, "trying": 5, "pending": 11}
    assert sut.gauges(3 * SILENCE_MS) == {"up": 0, "trying": 0, "pending": 0}


def test_instances_are_bounded() -> None:
    """However many names are heard, as many are remembered as there are labels."""
    sut = DurableNumbers(SILENCE_MS)
    for number in range(LABELS_MAX + 10):
        sut.reported(load(f"i{number}", trying=1), 0.0)

    assert sut.gauges(0.0)["trying"] == LABELS_MAX
