"""Calls and the vLLM requests they are made of: one call, charged once, reported once, however many requests it has."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from autellix.engine.executor import Preempted, Resumed, Started
from autellix.engine.policy import policy_named
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.engine.vllm_adapter.reports import Ended, Report, ReportReceiver, ReportSender
from autellix.schemas.ids import CallId

if TYPE_CHECKING:
    from vllm.v1.request import Request

    from autellix.engine.vllm_adapter.calls import EngineCalls

pytestmark = pytest.mark.vllm

CALL = CallId("call-1")
NONE: frozenset[str] = frozenset()
Told = Callable[[], list[Report]]
CreateRequest = Callable[..., "Request"]


@pytest.fixture(scope="session")
def request_of() -> CreateRequest:
    """Return what makes a vLLM request that belongs to a call."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    def make(name: str, call: str | None = None, **facts: float) -> Request:
        extra: dict[str, Any] = {} if call is None else {"autellix_call_id": call}
        extra |= {f"autellix_{key}": value for key, value in facts.items()}
        return Request(name, [1, 2, 3], SamplingParams(max_tokens=9, extra_args=extra), None)

    return make


@pytest.fixture
def receiver() -> Iterator[ReportReceiver]:
    """Return the worker's end of the reports; its path is short, as Unix sockets need."""
    with tempfile.TemporaryDirectory() as folder:
        reports = ReportReceiver(Path(folder) / "reports")
        yield reports
        reports.close()


@pytest.fixture
def queues() -> CallQueues:
    """Return the queues that the calls stand in."""
    return CallQueues(policy_named("plas"), Ladder((100.0, 300.0)), beta=4.0)


@pytest.fixture
def sender(receiver: ReportReceiver) -> Iterator[ReportSender]:
    """Return the scheduler's end of the reports."""
    reports = ReportSender(str(receiver.path))
    yield reports
    reports.close()


@pytest.fixture
def told(receiver: ReportReceiver, sender: ReportSender) -> Told:
    """Return what brings over all that was noted so far."""

    def bring() -> list[Report]:
        sender.send()
        return receiver.receive()

    return bring


@pytest.fixture
def calls(queues: CallQueues, sender: ReportSender) -> EngineCalls:
    """Return an engine's calls, empty."""
    from autellix.engine.vllm_adapter.calls import EngineCalls

    return EngineCalls(queues, sender)


def test_life_of_a_call(calls: EngineCalls, told: Told, request_of: CreateRequest) -> None:
    """A call's reports say when it first ran and what it was charged."""
    request = request_of("r1", "call-1", service_ms=150.0)
    calls.add(request, 1000.0)
    calls.charge(calls.scheduled([request], NONE, 1020.0), 30.0)
    request.append_output_token_ids([7, 8])
    calls.ended(request, 1060.0)

    assert told() == [
        Started(CALL, 20.0),
        Ended(
            call_id=CALL,
            service_ms=30.0,
            wait_ms=20.0,
            held_ms=0.0,
            preemptions=0,
            queues=(1,),
            prompt_tokens=3,
            cached_tokens=0,
            output_tokens=2,
        ),
    ]


def test_turns_of_a_displaced_call(calls: EngineCalls, told: Told, request_of: CreateRequest) -> None:
    """A call that is displaced and runs again says both, and each step that it runs on says nothing."""
    request = request_of("r1", "call-1")
    calls.add(request, 0.0)
    calls.scheduled([request], NONE, 5.0)
    calls.scheduled([], NONE, 6.0)
    calls.preempted(request, 7.0)
    calls.scheduled([request], NONE, 9.0)

    assert told() == [Started(CALL, 5.0), Preempted(CALL), Resumed(CALL)]


def test_requests_of_one_call(calls: EngineCalls, told: Told, request_of: CreateRequest) -> None:
    """The n requests of a call are charged once a step and reported together: outputs added, each prompt once."""
    requests = [request_of(name, "call-1") for name in ("0_a", "1_a", "0_b", "1_b")]
    for request in requests:
        calls.add(request, 0.0)
    calls.charge(calls.scheduled(requests, NONE, 5.0), 30.0)
    for request in requests:
        request.append_output_token_ids([7])
        calls.ended(request, 40.0)
    started, ended = told()

    assert started == Started(CALL, 5.0)
    assert isinstance(ended, Ended)
    assert (ended.service_ms, ended.prompt_tokens, ended.output_tokens) == (30.0, 6, 4)


def test_waits_only_when_none_runs(calls: EngineCalls, told: Told, request_of: CreateRequest) -> None:
    """A call runs while any of its requests does; it waits again when the last running one is put out or ends."""
    one, two = (request_of(name, "call-1") for name in ("r1", "r2"))
    for request in (one, two):
        calls.add(request, 0.0)
    calls.scheduled([one, two], NONE, 10.0)
    calls.preempted(one, 20.0)
    calls.preempted(two, 30.0)
    calls.scheduled([one], NONE, 50.0)
    calls.ended(one, 60.0)
    calls.ended(two, 100.0)
    ended = told()[-1]

    assert isinstance(ended, Ended)
    assert (ended.wait_ms, ended.preemptions) == (10.0 + 20.0 + 40.0, 1)


def test_the_rest_of_a_call_starves_too(calls: EngineCalls, request_of: CreateRequest) -> None:
    """The request that waits while its sister ended is promoted in its time."""
    one, two = (request_of(name, "call-1", service_ms=100.0) for name in ("r1", "r2"))
    for request in (one, two):
        calls.add(request, 0.0)
    calls.scheduled([one], NONE, 0.0)
    calls.ended(one, 10.0)

    assert calls.promoted(409.0) == []
    assert calls.promoted(410.0) == [two]
    assert calls.rank_of(two)[0] == 0


def test_charge_tells_who_sank(calls: EngineCalls, request_of: CreateRequest) -> None:
    """The requests of a demoted call are named, so that they can be moved where they wait."""
    one, two = request_of("r1", "call-1"), request_of("r2", "call-2")
    for request in (one, two):
        calls.add(request, 0.0)
    first = calls.scheduled([one, two], NONE, 0.0)
    calls.preempted(two, 10.0)
    second = calls.scheduled([], NONE, 10.0)

    assert calls.charge(first, 60.0) == []
    assert calls.charge(second, 60.0) == [one]
    assert calls.rank_of(one) > calls.rank_of(two)


def test_a_step_under_way_is_charged(
    calls: EngineCalls, told: Told, request_of: CreateRequest, queues: CallQueues
) -> None:
    """With two steps under way each is charged to those in it: not to who joined later or left before."""
    old, new = request_of("r1", "call-1"), request_of("r2", "call-2")
    for request in (old, new):
        calls.add(request, 0.0)
    first = calls.scheduled([old], NONE, 0.0)
    calls.preempted(old, 5.0)
    second = calls.scheduled([new], NONE, 5.0)
    calls.charge(first, 30.0)
    calls.charge(second, 40.0)
    for request in (old, new):
        calls.ended(request, 80.0)
    services = {report.call_id: report.service_ms for report in told() if isinstance(report, Ended)}

    assert services == {"call-1": 30.0, "call-2": 40.0}


def test_a_skipped_step_is_not_charged(calls: EngineCalls, told: Told, request_of: CreateRequest) -> None:
    """A running request that found no place in a step (the token budget was used up) is not charged for it."""
    one, two = request_of("r1", "call-1"), request_of("r2", "call-2")
    for request in (one, two):
        calls.add(request, 0.0)
    for entered, skipped in (([one, two], NONE), ([], {"r2"}), ([], {"r2"}), ([], NONE)):
        calls.charge(calls.scheduled(entered, skipped, 0.0), 10.0)
    for request in (one, two):
        calls.ended(request, 50.0)
    services = {report.call_id: report.service_ms for report in told() if isinstance(report, Ended)}

    assert services == {"call-1": 40.0, "call-2": 20.0}


def test_aborted_with_a_step_under_way(calls: EngineCalls, request_of: CreateRequest) -> None:
    """The step that an aborted call was in is charged to those that are left."""
    one, two = request_of("r1", "call-1"), request_of("r2", "call-2")
    for request in (one, two):
        calls.add(request, 0.0)
    change = calls.scheduled([one, two], NONE, 0.0)
    calls.ended(one, 5.0)

    assert calls.charge(change, 100.0) == [two]
    assert calls.charge(calls.scheduled([], NONE, 5.0), 10.0) == []


def test_aborted_before_it_ran(calls: EngineCalls, told: Told, request_of: CreateRequest) -> None:
    """A call that was aborted while it waited is reported, leaves the queues, and cannot end twice."""
    request = request_of("r1", "call-1")
    calls.add(request, 0.0)
    calls.ended(request, 70.0)
    calls.ended(request, 80.0)
    (ended,) = told()

    assert isinstance(ended, Ended)
    assert (ended.service_ms, ended.wait_ms) == (0.0, 70.0)
    assert calls.promoted(1e12) == []


def test_request_from_outside(calls: EngineCalls, told: Told, request_of: CreateRequest) -> None:
    """A request without a call's facts is a call of its own, of a program that had nothing."""
    request = request_of("r1")
    calls.add(request, 0.0)
    calls.ended(request, 1.0)
    (ended,) = told()

    assert isinstance(ended, Ended)
    assert (ended.call_id, ended.queues) == ("r1", (0,))
