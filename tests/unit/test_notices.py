"""What the worker tells its scheduler beside calls: it arrives, and nobody waits for it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autellix.engine.executor import Notice, ProgramOver
from autellix.engine.policy.gittins import rank_table
from autellix.engine.policy.learning import KINDS_TOLD
from autellix.engine.vllm_adapter.notices import NoticeReceiver, NoticeSender
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import Priorities
from autellix.services.session_manager.checks import NAME_MAX

NEWS = Priorities(pooled=rank_table([5.0, 70.0]))


def over(number: int) -> ProgramOver:
    """Return the notice that a program is over."""
    return ProgramOver(program_id=ProgramId(f"p{number}"))


@pytest.fixture
def address() -> Iterator[str]:
    """Return where the scheduler listens; its path is short, as Unix sockets need."""
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "notices")


@pytest.fixture
def receiver(address: str) -> Iterator[NoticeReceiver]:
    """Return the scheduler's end."""
    notices = NoticeReceiver(address)
    yield notices
    notices.close()


@pytest.fixture
def sender(address: str, receiver: NoticeReceiver) -> Iterator[NoticeSender]:
    """Return the worker's end."""
    notices = NoticeSender(address)
    yield notices
    notices.close()


def test_in_order(sender: NoticeSender, receiver: NoticeReceiver) -> None:
    """Notices of both kinds arrive as they were told, and then none."""
    for notice in (over(1), NEWS, over(2)):
        sender.tell(notice)

    assert [over(1), NEWS, over(2)] == receiver.receive()
    assert [] == receiver.receive()


def test_the_largest(sender: NoticeSender, receiver: NoticeReceiver) -> None:
    """As many kinds as the process table tells, with the longest names there are, fit."""
    table = rank_table([1e-3 + number / 7 for number in range(1000)])
    largest = Priorities(
        pooled=table, kinds={"\U0001f600" * (NAME_MAX - 2) + f"{n:02}": table for n in range(KINDS_TOLD)}
    )
    sender.tell(largest)

    assert [largest] == receiver.receive()


def test_scheduler_that_does_not_read(sender: NoticeSender, receiver: NoticeReceiver) -> None:
    """While an engine is idle the newest priorities are kept, and every program that is over, and nobody waits."""
    for number in range(100):
        sender.tell(over(number))
        sender.tell(Priorities(kinds={f"k{number}": rank_table([1.0])}))
    found: list[Notice] = []
    while notices := receiver.receive():
        found += notices
        sender.send()
    told = [notice for notice in found if isinstance(notice, Priorities)]

    assert [over(number) for number in range(100)] == [each for each in found if isinstance(each, ProgramOver)]
    assert ["k99"] == list(told[-1].kinds)
    assert len(told) < 50


def test_scheduler_that_is_gone(sender: NoticeSender, receiver: NoticeReceiver) -> None:
    """When nobody will read any more, nothing is kept."""
    receiver.close()
    sender.tell(NEWS)

    assert {} == sender._kept
    assert [] == receiver.receive()


def test_no_socket() -> None:
    """A scheduler without a worker hears nothing."""
    assert [] == NoticeReceiver(None).receive()
