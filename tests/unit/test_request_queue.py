"""vLLM's request queue in the order of ranks; importing vLLM takes seconds, so it is imported when the tests run."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.v1.request import Request

    from autellix.engine.policy.call import Rank
    from autellix.engine.vllm_adapter.request_queue import ProgramRequestQueue

pytestmark = pytest.mark.vllm

Ranks = dict[str, "Rank"]


@pytest.fixture(scope="session")
def make_request() -> Callable[[str], Request]:
    """Return what makes a vLLM request of an id."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    return lambda name: Request(name, [1, 2, 3], SamplingParams(max_tokens=1), None)


@pytest.fixture
def ranks() -> Ranks:
    """Return the ranks that the queue asks for, by request id; a test may change them."""
    return {}


@pytest.fixture
def queue(ranks: Ranks) -> ProgramRequestQueue:
    """Return an empty queue over `ranks`."""
    from autellix.engine.vllm_adapter.request_queue import ProgramRequestQueue

    return ProgramRequestQueue(lambda request: ranks[request.request_id])


@pytest.fixture
def waiting(
    queue: ProgramRequestQueue, ranks: Ranks, make_request: Callable[[str], Request]
) -> Callable[..., dict[str, Request]]:
    """Return what adds requests with these ranks to the queue."""

    def add(**wanted: Rank) -> dict[str, Request]:
        ranks.update(wanted)
        requests = {name: make_request(name) for name in wanted}
        for request in requests.values():
            queue.add_request(request)
        return requests

    return add


def drained(queue: ProgramRequestQueue) -> list[str]:
    """Return the ids in the order in which they are popped."""
    return [queue.pop_request().request_id for _ in range(len(queue))]


def ids(queue: ProgramRequestQueue) -> list[str]:
    """Return the ids in the order in which they are listed."""
    return [request.request_id for request in queue]


def test_smallest_rank_first(queue: ProgramRequestQueue, waiting: Callable[..., dict[str, Request]]) -> None:
    """Requests come in the order of queue and place; listing them changes nothing."""
    waiting(a=(0, 1.0, 0), b=(0, 0.0, 5), c=(0, 1.0, 3), d=(0, 0.0, 2))

    assert ids(queue) == ["d", "b", "a", "c"]
    assert queue.peek_request().request_id == "d"
    assert drained(queue) == ["d", "b", "a", "c"]
    assert not queue


def test_requests_of_one_call(queue: ProgramRequestQueue, waiting: Callable[..., dict[str, Request]]) -> None:
    """Requests of one rank, the n of one call, come in the order in which they were added."""
    waiting(a=(0, 0.0, 1), b=(0, 0.0, 1), c=(0, 0.0, 1))

    assert drained(queue) == ["a", "b", "c"]


def test_rerank(queue: ProgramRequestQueue, ranks: Ranks, waiting: Callable[..., dict[str, Request]]) -> None:
    """A request whose rank changed stands at its new place, once, whether it rose or sank."""
    requests = waiting(a=(0, 0.0, 0), b=(0, 1.0, 1), c=(0, 2.0, 2))
    ranks.update(a=(0, 3.0, 9), c=(0, 0.0, 8))
    queue.rerank(requests["a"])
    queue.rerank(requests["c"])

    assert len(queue) == 3
    assert ids(queue) == ["c", "b", "a"]
    assert drained(queue) == ["c", "b", "a"]


def test_rerank_of_a_stranger(queue: ProgramRequestQueue, ranks: Ranks, make_request: Callable[[str], Request]) -> None:
    """A request that does not wait here is not added by a change of its rank."""
    ranks["x"] = (0, 0.0, 0)
    queue.rerank(make_request("x"))

    assert len(queue) == 0


def test_removed_from_anywhere(queue: ProgramRequestQueue, waiting: Callable[..., dict[str, Request]]) -> None:
    """A removed request is gone, wherever it stood; removing it again is harmless."""
    requests = waiting(a=(0, 0.0, 0), b=(0, 0.0, 1), c=(0, 0.0, 2), d=(0, 0.0, 3))
    queue.remove_requests([requests["a"], requests["c"]])
    queue.remove_request(requests["c"])

    assert ids(queue) == ["b", "d"]
    assert drained(queue) == ["b", "d"]


def test_put_back(queue: ProgramRequestQueue, waiting: Callable[..., dict[str, Request]]) -> None:
    """A request that is put back stands where its rank says, not at the front."""
    requests = waiting(a=(0, 0.0, 0), b=(0, 0.0, 1))
    queue.remove_requests(requests.values())
    queue.prepend_requests([requests["b"], requests["a"]])

    assert drained(queue) == ["a", "b"]


def test_held(queue: ProgramRequestQueue, ranks: Ranks, waiting: Callable[..., dict[str, Request]]) -> None:
    """A held request is counted and listed, last, but not offered until it passes, at the rank it has then."""
    requests = waiting(a=(0, 0.0, 0), b=(0, 0.0, 1), c=(0, 0.0, 2))
    queue.hold(requests["a"])
    queue.hold(requests["b"])
    ranks["b"] = (0, 1.0, 3)
    queue.rerank(requests["b"])

    assert (len(queue), ids(queue)) == (3, ["c", "a", "b"])
    assert [request.request_id for request in queue.best_first()] == ["c"]
    queue.let_pass(requests["a"])
    queue.let_pass(requests["b"])
    queue.let_pass(requests["c"])
    assert drained(queue) == ["a", "c", "b"]


def test_all_held(queue: ProgramRequestQueue, waiting: Callable[..., dict[str, Request]]) -> None:
    """With all requests held there is none to let in; one that is removed does not come back."""
    requests = waiting(a=(0, 0.0, 0), b=(0, 0.0, 1))
    for request in requests.values():
        queue.hold(request)
    queue.remove_requests([requests["a"]])
    queue.let_pass(requests["a"])

    assert not queue
    assert ids(queue) == ["b"]
    with pytest.raises(IndexError):
        queue.peek_request()


def test_first_leaves_everything(queue: ProgramRequestQueue, waiting: Callable[..., dict[str, Request]]) -> None:
    """Looking at the first few takes nothing away."""
    waiting(a=(0, 0.0, 2), b=(0, 0.0, 0), c=(0, 0.0, 1))

    assert [request.request_id for request in islice(queue.best_first(), 2)] == ["b", "c"]
    assert [request.request_id for request in queue.best_first()] == ["b", "c", "a"]
    assert drained(queue) == ["b", "c", "a"]


def test_empty(queue: ProgramRequestQueue, waiting: Callable[..., dict[str, Request]]) -> None:
    """Nothing can be taken from a queue whose every request was removed."""
    queue.remove_requests(waiting(a=(0, 0.0, 0), b=(0, 0.0, 1)).values())

    for take in (queue.peek_request, queue.pop_request):
        with pytest.raises(IndexError):
            take()


def test_does_not_keep_what_left(
    queue: ProgramRequestQueue, ranks: Ranks, waiting: Callable[..., dict[str, Request]]
) -> None:
    """Requests that were aborted deep in the queue, or often ranked anew, do not pile up in memory."""
    requests = waiting(a=(0, 0.0, 0))
    for place in range(1000):
        ranks["a"] = (0, 9.0, place)
        queue.rerank(requests["a"])

    assert len(queue._heap) < 100
    assert ids(queue) == ["a"]
