"""Fits the ladder to the calls and programs that an engine sees (the paper gives neither bounds nor quanta).

Rules:
* What decides is the last bound: the last queue begins at or above the 99th percentile of what programs attain, else
  long programs pile up in it, first come, first served. The first quantum is a low percentile of the service of calls.
  With q1 and P99, K = 2 + ceil(log2(P99 / q1)).
* Both are measured on the policy's own scale: what a call entered with plus what it had; of a program the most of that.
  A program that still runs counts with what it has so far, so the top may grow late, never shrink too early.
* All fitted ladders share one grid, the initial first quantum times powers of two: their bounds coincide, so calls that
  stand at bounds of an earlier ladder stay comparable.
* Until enough programs are known the initial ladder stays.
"""

from collections import OrderedDict, deque
from collections.abc import Collection
from math import ceil, log2

from autellix.engine.policy.ladder import Ladder
from autellix.schemas.ids import ProgramId

KNOWN_MIN = 30
"""Programs seen before the first fit."""
REMEMBERED = 1024
"""Calls, and programs, that a fit looks back at."""
FIT_EVERY = 64
"""Ended calls between two fits."""
QUEUES_MAX = 32
CALL_PERCENTILE = 0.25
PROGRAM_PERCENTILE = 0.99


class LadderFitter:
    """What ended lately, and the ladder that follows from it."""

    def __init__(self, *, first_quantum_ms: float) -> None:
        self._grid_ms = first_quantum_ms
        self._services: deque[float] = deque(maxlen=REMEMBERED)
        self._attained: OrderedDict[ProgramId, float] = OrderedDict()
        self._since_fit = 0

    def ended(self, program_id: ProgramId, attained_ms: float, service_ms: float) -> Ladder | None:
        """Take in an ended call; now and then return a ladder fitted to the latest.

        Args:
            program_id: The call's program.
            attained_ms: What the program has attained by it, on the policy's scale.
            service_ms: The call's own service.
        """
        if service_ms <= 0:  # it never ran, and says nothing
            return None
        self._services.append(service_ms)
        self._attained[program_id] = max(attained_ms, self._attained.pop(program_id, 0.0))
        if len(self._attained) > REMEMBERED:
            self._attained.popitem(last=False)
        self._since_fit += 1
        if self._since_fit < FIT_EVERY or len(self._attained) < KNOWN_MIN:
            return None
        self._since_fit = 0
        return self._fit()

    def _fit(self) -> Ladder:
        quantum_ms = max(percentile(self._services, CALL_PERCENTILE), self._grid_ms / 2**QUEUES_MAX)
        first_ms = self._grid_ms * 2.0 ** round(log2(quantum_ms / self._grid_ms))
        top_ms = max(percentile(self._attained.values(), PROGRAM_PERCENTILE), first_ms)
        queues = 2 + ceil(log2(top_ms / first_ms))
        return Ladder.doubling(first_quantum_ms=first_ms, queues=min(queues, QUEUES_MAX))


def percentile(values: Collection[float], share: float) -> float:
    """Return the smallest of `values` that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
