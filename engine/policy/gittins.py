"""The Gittins index over the service of programs: who is most likely to end soon for the time it is given goes first.

Attained service alone says "least first", which is right where the longer a program has run, the longer it has to go.
Where it is the other way round, first come, first served is right, and least first is the worst there is. The index
tells them apart by the services of programs that ended (Gittins 1989; Aalto, Ayesta, Righter 2009).

Rules:
* With S the service of a whole program, the index at age a is the largest, over all D, of
  E[1/S; S - a <= D | S > a] / E[min(S - a, D) | S > a]: what is gained by the programs that end, for the time spent on
  all. An end counts by 1/S, as in the paper's measure, latency per token (section 6.1): a second of waiting costs a
  program the more the shorter it is. The rank is the inverse of the index's root, which makes it milliseconds.
* Age is the *sum* of the services of a program's calls, as in PLAS: what others go without is the engine's time.
* Ages are in buckets, one an octave; ages within one have one rank, that of its beginning, and D ends with a bucket.
* Older than every program that ended, nothing is known: there the least attained goes first, and nobody goes before
  those of the oldest known age.
* While nothing at all is known the rank is the attained service: the ladder of PLAS.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import floor, inf, log2, sqrt

from autellix.engine.policy.base import Policy
from autellix.engine.policy.call import Queue, QueuedCall
from autellix.engine.policy.ladder import Ladder
from autellix.schemas.messages import Priorities, ProgramFacts, RankTable

KNOWN = 20
"""Buckets below the longest program that ended: those who have had less than a millionth of it are alike."""
BEYOND = 8
"""Buckets above it: up to 256 times as long."""
ENDS_MIN = 5
ENDS_SHARE = 10
"""D is such that at least so many programs end in it, and one in so many of those that are older: fewer are chance."""
LEAST_MS = 1.0
"""The smallest rank and the shortest quantum: what is less may be rounding."""


class Gittins(Policy):
    """A call enters the bucket that holds its program's age, and may rise as well as sink with each further one."""

    def __init__(self) -> None:
        self._known = Priorities()

    def learn(self, priorities: Priorities) -> None:
        """Go by these tables from now on; who stands in a bucket of older ones stays there until its end."""
        self._known = priorities

    def entry_service_ms(self, program: ProgramFacts) -> float:
        """Return what the whole program has attained: its age."""
        return program.service_ms

    def enter(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the bucket that holds the age of the call's program."""
        age_ms = call.program.service_ms + call.service_ms
        table = self._table(call)
        return bucket(table, age_ms) if table else ladder.queue_at(age_ms)

    def demote(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the bucket that the call has come to, be it better or worse, and whatever it was promoted before."""
        return self.enter(call, ladder)

    def promote(self, call: QueuedCall, ladder: Ladder) -> Queue:
        """Return the call's own bucket, at the rank of a new program of its kind unless the call has a better one."""
        table = self._table(call)
        if table is None:
            return super().promote(call, ladder)
        return self.enter(call, ladder)._replace(lo_ms=min(call.lo_ms, table.ranks_ms[0]))

    def earned_ms(self, call: QueuedCall) -> float:
        """Return the rank of its bucket: service alone brought it there."""
        return call.lo_ms

    def _table(self, call: QueuedCall) -> RankTable | None:
        return self._known.kinds.get(call.program.kind, self._known.pooled)


def bucket(table: RankTable, age_ms: float) -> Queue:
    """Return the bucket that holds an age as a queue that ends where the bucket does."""
    number = bisect_right(table.starts_ms, age_ms) - 1
    end_ms = table.starts_ms[number + 1] if number + 1 < len(table.starts_ms) else inf
    return Queue(number, table.ranks_ms[number], max(end_ms - age_ms, LEAST_MS))


def rank_table(services_ms: Sequence[float]) -> RankTable:
    """Return the ranks that follow from the services of programs that ended, at least one, all positive.

    All buckets lie on one grid, so that tables of different kinds and times have the same.
    """
    services = Services(services_ms)
    last = floor(log2(services.longest_ms))
    grid = [0.0, *(2.0**step for step in range(last - KNOWN, last + BEYOND + 1))]
    starts = [start for start in grid if start < services.longest_ms]
    ends = [*starts[1:], services.longest_ms]
    ranks = [services.rank_ms(start, ends[number:]) for number, start in enumerate(starts)]
    beyond = [max(ranks[-1], start) for start in grid[len(starts) :]]
    return RankTable(starts_ms=tuple(grid), ranks_ms=(*ranks, *beyond), grows=services.grow)


class Services:
    """The services of programs that ended, and what they and their inverses sum up to from the shortest on."""

    def __init__(self, services_ms: Sequence[float]) -> None:
        self._ordered = sorted(services_ms)
        self._sums = [0.0, *accumulate(self._ordered)]
        self._gains = [0.0, *accumulate(1 / service_ms for service_ms in self._ordered)]

    @property
    def longest_ms(self) -> float:
        """Return the longest."""
        return self._ordered[-1]

    @property
    def grow(self) -> bool:
        """Tell whether a program that has run for long has longer to go than a new one, by the median service."""
        half = len(self._ordered) // 2
        older = len(self._ordered) - half
        residual_ms = (self._sums[-1] - self._sums[half]) / older - self._ordered[half - 1] if half else 0.0
        return residual_ms > self._sums[-1] / len(self._ordered)

    def rank_ms(self, start_ms: float, ends_ms: Iterable[float]) -> float:
        """Return the rank of those older than `start_ms`, who may run until one of `ends_ms`."""
        younger = bisect_right(self._ordered, start_ms)
        older = len(self._ordered) - younger
        enough = min(older, max(ENDS_MIN, older // ENDS_SHARE))
        square = inf
        for end_ms in ends_ms:
            ended = bisect_right(self._ordered, end_ms)
            if ended - younger >= enough:
                spent_ms = self._sums[ended] - self._sums[younger] + (len(self._ordered) - ended) * end_ms
                square = min(square, (spent_ms - older * start_ms) / (self._gains[ended] - self._gains[younger]))
        return max(sqrt(square), LEAST_MS)
