"""What the worker and its scheduler tell each other: options, the facts of a call, and reports over a socket."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.executor import EngineCall, Load, Started
from autellix.engine.vllm_adapter.options import SchedulerOptions, from_config, from_xargs, to_config, to_xargs
from autellix.engine.vllm_adapter.reports import Busy, Ended, ReportReceiver, ReportSender
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

BUSY = Busy(load=Load(running=1, waiting=2, kv_usage=0.5, steps=3))
durations = st.floats(0, 1e12)


@pytest.fixture
def receiver() -> Iterator[ReportReceiver]:
    """Return the worker's end; its path is short, as Unix sockets need."""
    with tempfile.TemporaryDirectory() as folder:
        reports = ReportReceiver(Path(folder) / "reports")
        yield reports
        reports.close()


def test_options_survive_the_way() -> None:
    """The scheduler reads the options that the worker gave it, through plain values."""
    options = SchedulerOptions(policy="plas", beta=3.0, report_socket="/run/x")
    config = msgspec.json.decode(msgspec.json.encode(to_config(options)))

    assert from_config(config) == options


@pytest.mark.parametrize("config", [None, {}, {"other": {}}, []])
def test_scheduler_without_options(config: object) -> None:
    """A scheduler that was started without its options says what it needs."""
    with pytest.raises(ValueError, match="needs additional_config"):
        from_config(config)


@given(durations, durations, durations, st.text())
def test_facts_survive_the_way(service_ms: float, path_ms: float, waiting_ms: float, kind: str) -> None:
    """A call's facts come out of the flat arguments as they went in."""
    facts = ProgramFacts(service_ms=service_ms, critical_path_ms=path_ms, waiting_ms=waiting_ms, kind=kind)
    call = EngineCall(
        CallId("c1"), ProgramId("p"), ThreadId("main"), "/v1/completions", b"{}", stream=False, program=facts
    )

    assert from_xargs({**to_xargs(call), "other": [1]}, "request-1") == ("c1", "p", "main", facts, False)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "much", None, [1.0]])
def test_facts_that_are_none(value: object) -> None:
    """What came past the worker and is no duration counts as none; it harms nobody else's order."""
    arguments = {"autellix_call_id": "c1", "autellix_program_id": "p", "autellix_service_ms": value}

    assert from_xargs(arguments, "request-1").program == ProgramFacts()


@pytest.mark.parametrize("arguments", [None, {}, {"other": 1}])
def test_request_without_facts(arguments: dict[str, object] | None) -> None:
    """A request that came past the worker is a call of its own, of a program that had nothing."""
    assert from_xargs(arguments, "request-1") == ("request-1", "request-1", "", ProgramFacts(), True)


def test_reports_in_order(receiver: ReportReceiver) -> None:
    """Reports are received whole and in order, as many as have come, and then none."""
    sender = ReportSender(str(receiver.path))
    ended = Ended(
        call_id=CallId("c1"),
        service_ms=1.5,
        wait_ms=0.0,
        held_ms=0.0,
        preemptions=0,
        queues=tuple(range(12)) * 100,
        prompt_tokens=1,
        cached_tokens=0,
        output_tokens=2,
    )
    for report in (Started(CallId("c1"), 2.5), BUSY, ended):
        sender.note(report)
    sender.send()

    assert receiver.receive() == [Started(CallId("c1"), 2.5), BUSY, ended]
    assert receiver.receive() == []
    sender.close()


def test_worker_that_does_not_read(receiver: ReportReceiver) -> None:
    """Nothing is lost on a worker that does not read for a while, and the sender does not wait for it."""
    sender = ReportSender(str(receiver.path))
    numbers = range(1000)
    for number in numbers:
        sender.note(Started(CallId(f"c{number}"), 0.0))
        sender.send()
    found = receiver.receive()
    while len(found) < len(numbers):
        sender.send()
        found += receiver.receive()

    assert [f"c{number}" for number in numbers] == [report.call_id for report in found if isinstance(report, Started)]
    sender.close()


def test_patience(receiver: ReportReceiver) -> None:
    """With patience the sender waits until the worker reads; without a worker it does not."""
    sender = ReportSender(str(receiver.path))
    for number in range(1000):
        sender.note(Started(CallId(f"c{number}"), 0.0))
        sender.send()
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(drained(receiver, 1000)))
    reader.start()
    sender.send(patience_ms=10_000)
    reader.join()
    receiver.close()
    sender.note(BUSY)
    sender.send(patience_ms=10_000)

    assert len(found) == 1000
    assert not receiver.path.exists()
    sender.close()


def drained(receiver: ReportReceiver, count: int) -> list[Any]:
    """Read until so many reports have come."""
    found: list[Any] = []
    while len(found) < count:
        found += receiver.receive()
    return found


def test_nobody_to_report_to() -> None:
    """A scheduler without a worker reports to nobody."""
    sender = ReportSender(None)
    sender.note(BUSY)
    sender.send()

    assert sender._socket is None
