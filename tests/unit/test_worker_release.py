"""Which held calls a worker gives back, and what is said of them."""

from typing import Any

import pytest
from msgspec.structs import replace

from autellix.engine.executor import Account, Held, Started
from autellix.schemas import subjects
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import Call, CallHeld, ProgramFacts, ReleasedCall, ReleaseHeld, RoutedCall
from autellix.services.engine_worker.core import RELEASED, End, Verdict, WorkerCore

ANY = ReleaseHeld(prompt_tokens_max=10**6, models=("m", "n"))


class Worker:
    """A worker's core, with short words for what happens."""

    def __init__(self) -> None:
        self.core = WorkerCore(EngineId("e0"), Incarnation("i1"))

    def arrives(
        self, name: str, program: str, tokens: int = 100, *, model: str = "m", moved: bool = False
    ) -> RoutedCall:
        """Let a call arrive."""
        call = Call(
            call_id=CallId(name),
            program_id=ProgramId(program),
            thread_id=ThreadId("main"),
            api="",
            model=model,
            body=b"{}",
            stream=False,
            reply_to="_INBOX.1",
            arrival_at_ms=0.0,
        )
        facts = ProgramFacts(prompt_tokens_estimate=tokens)
        e0, i1 = self.core.engine_id, self.core.incarnation
        routed = RoutedCall(call=call, program=facts, engine_id=e0, incarnation=i1, reason="", moved=moved)
        assert self.core.arrive(routed) is Verdict.RUN
        return routed

    def held(self, name: str, program: str, tokens: int = 100, **facts: Any) -> RoutedCall:
        """Let a call arrive that the engine holds."""
        routed = self.arrives(name, program, tokens, **facts)
        self.core.turn(routed, Held(CallId(name), "plas", 2, 6000, 1400), now_ms=1.0)
        return routed


@pytest.fixture
def worker() -> Worker:
    """Return a worker without calls."""
    return Worker()


def test_a_held_call_is_told(worker: Worker) -> None:
    """The event of a held call says why it is held."""
    event = worker.core.turn(worker.arrives("c1", "p"), Held(CallId("c1"), "plas", 2, 6000, 1400), now_ms=1.0)

    assert isinstance(event, CallHeld)
    assert ("c1", "e0", "held: 2 programs ahead by plas, 6k of 1k tokens free") == (
        event.call_id,
        event.engine_id,
        event.reason,
    )


def test_the_cheapest_program_goes_first(worker: Worker) -> None:
    """Of the held programs that one goes whose calls are together the least to compute, with all of them, and once."""
    worker.held("a1", "a", 300)
    worker.held("b1", "b", 100)
    worker.held("b2", "b", 100)

    assert ["b1", "b2"] == worker.core.release(ANY)
    assert ["a1"] == worker.core.release(ANY)
    assert [] == worker.core.release(ANY)


def test_what_costs_more_than_the_wait_stays(worker: Worker) -> None:
    """A program whose prompts are longer than the order says stays."""
    worker.held("c1", "p", 100)
    worker.held("c2", "p", 101)

    assert [] == worker.core.release(ReleaseHeld(prompt_tokens_max=200, models=("m",)))
    assert ["c1", "c2"] == worker.core.release(ReleaseHeld(prompt_tokens_max=201, models=("m",)))


def test_a_program_stays_that_has_passed(worker: Worker) -> None:
    """A held call stays while another call of its program runs, or has just arrived."""
    worker.held("c1", "p")
    running = worker.arrives("c2", "p")

    assert [] == worker.core.release(ANY)
    worker.core.end(running, End(response={}), Account(), seq=1, now_ms=2.0)
    assert ["c1"] == worker.core.release(ANY)


def test_a_call_that_began_stays(worker: Worker) -> None:
    """A call that was held and has begun is not given back."""
    worker.core.turn(worker.held("c1", "p"), Started(CallId("c1"), 5.0), now_ms=2.0)

    assert [] == worker.core.release(ANY)


def test_what_may_not_go(worker: Worker) -> None:
    """A call that was moved once stays, and so does one for a model that the other engine does not serve."""
    worker.held("c1", "p", moved=True)
    worker.held("c2", "q", model="other")

    assert [] == worker.core.release(ANY)


def test_a_released_call_ends_here_in_silence(worker: Worker) -> None:
    """What is said of it goes to the balancer alone; it is live no more, and runs should it come back."""
    routed = worker.held("c1", "p")
    (out,) = worker.core.end(routed, RELEASED, Account(), seq=1, now_ms=2.0)

    assert (subjects.CALL_RELEASED, "released") == (out.subject, RELEASED.outcome)
    assert ReleasedCall(call=routed.call, program=routed.program, engine_id=EngineId("e0")) == out.message
    assert {} == worker.core.live
    assert worker.core.arrive(routed) is Verdict.RUN


def test_several_balancers(worker: Worker) -> None:
    """Of the orders that follow from one heartbeat of another engine the first counts, whoever sends them."""
    for program in "abc":
        worker.held(f"{program}1", program)
    orders = [replace(ANY, taker=EngineId(taker), asked_at_ms=at_ms) for taker, at_ms in (("e1", 1.0), ("e2", 1.0))]

    assert [["a1"], [], ["b1"]] == [worker.core.release(orders[index]) for index in (0, 0, 1)]
    assert ["c1"] == worker.core.release(replace(orders[0], asked_at_ms=2.0))
