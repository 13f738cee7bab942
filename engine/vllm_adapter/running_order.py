"""Keeps vLLM's list of running requests in order of rank, at the price of what changed.

vLLM appends whom it admits and removes whom it ends or preempts; the policy changes ranks. So the list is sorted by the
ranks at which its requests were put in, up to a tail that was appended since.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from vllm.v1.request import Request

from autellix.engine.policy.call import Rank


class RunningOrder:
    """What is known of where running requests stand.

    Args:
        rank_of: The rank a request has now.
    """

    def __init__(self, rank_of: Callable[[Request], Rank]) -> None:
        self._rank_of = rank_of
        self._stands_at: dict[str, Rank] = {}
        """The rank at which each request of the sorted part was put in."""
        self._tail: set[str] = set()
        self._moved: list[Request] = []

    def appended(self, requests: Iterable[Request]) -> None:
        """Note that requests stand at the end of the list, whatever their ranks."""
        for request in requests:
            self._tail.add(request.request_id)
            self._stands_at.pop(request.request_id, None)

    def moved(self, request: Request) -> None:
        """Note that the rank of a running request changed."""
        self._moved.append(request)

    def forget(self, request: Request) -> None:
        """Note that a request runs no more."""
        self._stands_at.pop(request.request_id, None)

    def restore(self, running: list[Request]) -> None:
        """Sort the list again, in place."""
        misplaced = []
        while running and running[-1].request_id in self._tail:
            misplaced.append(running.pop())
        misplaced += [request for request in self._moved if self._take_out(running, request)]
        for request in misplaced:
            self._stands_at[request.request_id] = self._rank_of(request)
            insort(running, request, key=self._where)
        self._tail.clear()
        self._moved.clear()

    def _where(self, request: Request) -> Rank:
        return self._stands_at[request.request_id]

    def _take_out(self, running: list[Request], request: Request) -> bool:
        """Take a request out of the sorted part, if it is there."""
        rank = self._stands_at.get(request.request_id)
        if rank is None:
            return False
        place = bisect_left(running, rank, key=self._where)
        while place < len(running) and self._where(running[place]) == rank:
            if running[place] is request:
                del running[place]
                return True
            place += 1  # another request of the same call
        return False
