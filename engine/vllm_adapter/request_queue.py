"""vLLM's request queue, in the order of the policy.

The rank of a request is asked when it is added. A rank that changes while the request waits (a promotion) is told by
`rerank`. Removed and re-ranked entries stay in the heap until they come to its top, or are most of it.

A request that the gate holds waits, too: it is counted, listed and removed like the others. But it is not offered, so
to whoever looks for a request to let in the queue is empty if all are held.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request

from autellix.engine.policy.call import Rank

Entry = tuple[Rank, int, Request]


class ProgramRequestQueue(RequestQueue):
    """Waiting requests, the smallest rank first."""

    def __init__(self, rank_of: Callable[[Request], Rank]) -> None:
        self._rank_of = rank_of
        self._heap: list[Entry] = []
        self._valid: dict[str, Entry] = {}
        self._held: dict[str, Request] = {}
        self._numbers = itertools.count()

    def add_request(self, request: Request) -> None:
        """Add a request at its rank."""
        entry = (self._rank_of(request), next(self._numbers), request)
        self._valid[request.request_id] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 64 + 2 * len(self._valid):  # most entries are void
            self._heap = list(self._valid.values())
            heapq.heapify(self._heap)

    def rerank(self, request: Request) -> None:
        """Move a request that waits here to the rank it has now."""
        if request.request_id in self._valid:
            self.add_request(request)

    def hold(self, request: Request) -> None:
        """Stop offering a request that waits here."""
        del self._valid[request.request_id]
        self._held[request.request_id] = request

    def let_pass(self, request: Request) -> None:
        """Offer a request that was held, at the rank it has now."""
        if self._held.pop(request.request_id, None):
            self.add_request(request)

    def pop_request(self) -> Request:
        """Remove and return the first request.

        Raises:
            IndexError: when there is none.
        """
        request = self.peek_request()
        heapq.heappop(self._heap)
        del self._valid[request.request_id]
        return request

    def peek_request(self) -> Request:
        """Return the first request.

        Raises:
            IndexError: when there is none.
        """
        while True:
            entry = self._heap[0]
            if self._valid.get(entry[2].request_id) is entry:
                return entry[2]
            heapq.heappop(self._heap)

    def best_first(self) -> Iterator[Request]:
        """Yield the requests in order, leaving them here; each costs O(log n) of those yielded so far."""
        heap = self._heap
        frontier = [(heap[0], 0)] if heap else []
        while frontier:
            entry, index = heapq.heappop(frontier)
            if self._valid.get(entry[2].request_id) is entry:
                yield entry[2]
            for child in range(2 * index + 1, min(2 * index + 3, len(heap))):
                heapq.heappush(frontier, (heap[child], child))

    def prepend_request(self, request: Request) -> None:
        """Put a request back; its rank says where."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Put requests back; their ranks say where."""
        for request in requests:
            self.add_request(request)

    def remove_request(self, request: Request) -> None:
        """Remove a request, wherever it stands."""
        self._valid.pop(request.request_id, None)
        self._held.pop(request.request_id, None)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove requests, wherever they stand."""
        for request in requests:
            self.remove_request(request)

    def __bool__(self) -> bool:
        return bool(self._valid)

    def __len__(self) -> int:
        return len(self._valid) + len(self._held)

    def __iter__(self) -> Iterator[Request]:
        offered = sorted(self._valid.values(), key=lambda entry: entry[:2])
        return iter([*(entry[2] for entry in offered), *self._held.values()])
