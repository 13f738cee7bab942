"""Which calls a worker takes, and what is said when one ends."""

from typing import Any

import pytest

from autellix.engine.executor import Account
from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import (
    Call,
    CallCancelled,
    CallFailed,
    CallFinished,
    Failed,
    Finished,
    ProgramFacts,
    RoutedCall,
)
from autellix.services.engine_worker import core as worker_core
from autellix.services.engine_worker.core import End, Verdict, WorkerCore

P = ProgramId("p")
ACCOUNT = Account(service_ms=40.0, wait_ms=5.0, preemptions=2, queues=(0, 1), prompt_tokens=7, output_tokens=9)
BROKEN = ErrorBody(message="it broke", type="server_error", code="broken")


@pytest.fixture
def core() -> WorkerCore:
    """Return the core of a worker that has no calls."""
    return WorkerCore(EngineId("e0"), Incarnation("i1"))


def routed(number: int = 1, incarnation: str = "i1", **fields: Any) -> RoutedCall:
    """Return a call of the program that reaches the worker."""
    known: dict[str, Any] = {
        "call_id": CallId(f"c{number}"),
        "program_id": P,
        "thread_id": ThreadId("main"),
        "api": "/v1/chat/completions",
        "model": "m",
        "body": b"{}",
        "stream": False,
        "reply_to": "_INBOX.1",
        "arrival_at_ms": 100.0,
    }
    return RoutedCall(
        call=Call(**{**known, **fields}),
        program=ProgramFacts(critical_path_ms=300.0),
        engine_id=EngineId("e0"),
        incarnation=Incarnation(incarnation),
        reason="least used",
    )


def test_call_runs_once(core: WorkerCore) -> None:
    """A second delivery is ignored while the call lives and after it ended."""
    call = routed()
    verdicts = [core.arrive(call), core.arrive(call)]
    core.end(call, End(response={}), Account(), seq=1, now_ms=0.0)
    verdicts.append(core.arrive(call))

    assert verdicts == [Verdict.RUN, Verdict.IGNORE, Verdict.IGNORE]
    assert core.live == {}


def test_call_of_an_earlier_life(core: WorkerCore) -> None:
    """A call that was sent to the worker's earlier life is the balancer's to end."""
    assert core.arrive(routed(incarnation="i0")) is Verdict.IGNORE


def test_draining(core: WorkerCore) -> None:
    """A draining worker refuses what is new, and takes calls again when it is resumed."""
    core.draining = True
    assert core.arrive(routed(1)) is Verdict.DRAINING
    core.draining = False
    assert core.arrive(routed(2)) is Verdict.RUN


def test_cancel_of_a_call(core: WorkerCore) -> None:
    """An order hits the call it names, and only while it lives."""
    one, two = routed(1), routed(2)
    core.arrive(one)
    core.arrive(two)

    assert core.cancel(call_id=CallId("c1"), program_id=None) == ["c1"]
    core.end(one, End(cancelled="by its client"), Account(), seq=1, now_ms=0.0)
    assert core.cancel(call_id=CallId("c1"), program_id=None) == []
    assert set(core.live) == {"c2"}


def test_cancel_before_the_call(core: WorkerCore) -> None:
    """A call whose cancellation came first does not run, even when it is delivered twice."""
    assert core.cancel(call_id=CallId("c1"), program_id=P) == []
    assert core.arrive(routed(1)) is Verdict.CANCELLED
    core.end(routed(1), End(cancelled="before it began"), Account(), seq=1, now_ms=0.0)

    assert core.arrive(routed(1)) is Verdict.IGNORE


def test_cancel_of_a_program(core: WorkerCore) -> None:
    """An order for a program hits its live calls; the calls it makes later run."""
    for number in (1, 2):
        core.arrive(routed(number))
    core.arrive(routed(3, program_id=ProgramId("q")))

    assert core.cancel(call_id=None, program_id=P) == ["c1", "c2"]
    assert core.arrive(routed(4)) is Verdict.RUN


def test_one_call_of_a_program(core: WorkerCore) -> None:
    """An order that names a call and its program is about that call alone."""
    for number in (1, 2):
        core.arrive(routed(number))

    assert core.cancel(call_id=CallId("c2"), program_id=P) == ["c2"]


ENDS = [
    (End(response={"x": 1}), CallFinished, Finished),
    (End(status=500, error=BROKEN), CallFailed, Failed),
    (End(cancelled="by its client"), CallCancelled, Failed),
]


@pytest.mark.parametrize(("end", "event_kind", "frame_kind"), ENDS, ids=lambda value: getattr(value, "outcome", ""))
def test_event_before_the_last_frame(core: WorkerCore, end: End, event_kind: type[Any], frame_kind: type[Any]) -> None:
    """Every end is one event with the call's whole account, and then one frame to the client."""
    call = routed(reply_json=True)
    core.arrive(call)
    event, frame = core.end(call, end, ACCOUNT, seq=4, now_ms=900.0)

    assert (type(event.message), type(frame.message)) == (event_kind, frame_kind)
    assert (event.subject, frame.subject) == (f"autellix.events.call.{end.outcome}", "_INBOX.1")
    assert (event.as_json, frame.as_json) == (False, True)
    assert event.message.engine_id == "e0"  # type: ignore[attr-defined]
    for name in ("service_ms", "wait_ms", "preemptions", "queues", "prompt_tokens", "output_tokens"):
        assert getattr(ACCOUNT, name) == getattr(event.message, name)
    assert event.message.critical_path_at_arrival_ms == 300.0  # type: ignore[attr-defined]


def test_answer(core: WorkerCore) -> None:
    """The last frame of an answered call is numbered and carries the response and the call's account."""
    event, frame = core.end(routed(), End(response={"x": 1}), ACCOUNT, seq=4, now_ms=900.0)

    assert isinstance(frame.message, Finished)
    assert (frame.message.seq, frame.message.response, frame.message.call) == (4, {"x": 1}, event.message)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (End(status=503, error=BROKEN, retry_safe=True), (503, "broken", True, 1.0)),
        (End(status=503, error=BROKEN), (503, "broken", False, 1.0)),
        (End(status=400, error=BROKEN), (400, "broken", False, None)),
        (End(cancelled="by its client"), (499, "cancelled", False, None)),
    ],
)
def test_failures(core: WorkerCore, end: End, expected: tuple[Any, ...]) -> None:
    """A failure says its status and whether and when to retry."""
    failed = core.end(routed(), end, Account(), seq=1, now_ms=0.0)[1].message

    assert isinstance(failed, Failed)
    assert (failed.status, failed.error.code, failed.retry_safe, failed.retry_after_s) == expected


def test_memory_is_bounded(core: WorkerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended calls and orders that came early are remembered up to a bound, the newest longest."""
    monkeypatch.setattr(worker_core, "REMEMBERED", 10)
    for number in range(100):
        core.end(routed(number), End(response={}), Account(), seq=1, now_ms=0.0)
        core.cancel(call_id=CallId(f"early{number}"), program_id=None)

    assert (len(core._ended), len(core._tombstones)) == (10, 10)
    assert core.arrive(routed(99)) is Verdict.IGNORE
