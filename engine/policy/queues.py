"""The calls of one engine in the queues of the ladder (paper section 4.2.2, Algorithm 1).

Rules:
* A call enters the queue that holds its program's attained service, at the back, with that queue's quantum.
* Service is charged per engine step to every call in it. A call whose quantum is used up goes to the back of the next
  queue with that queue's quantum; in the last queue the quantum never ends.
* Within a queue the order is that of entering it. A preempted call keeps its place; so does a running one.
* A waiting call is promoted to the back of the best queue when (W_p + W_c) / max(T_p + T_c, floor) >= beta, with W and
  T the waited and the attained time of its program and of itself. Only the call's *window* counters are then reset; the
  *lifetime* ones are what its program is charged (the paper's line 29 resets the one counter that line 4 needs).
* A step that was under way when its call was preempted is charged to the waiting call, which may sink by it.
* Time is an argument, in milliseconds of any clock that does not go back. Each event costs O(log n).
"""

import heapq
import itertools
from dataclasses import dataclass, field

from autellix.engine.policy.base import Policy
from autellix.engine.policy.ladder import Ladder
from autellix.schemas.ids import CallId
from autellix.schemas.messages import ProgramFacts

Rank = tuple[int, int]
"""Queue, and place in it: the smaller runs first."""


@dataclass(eq=False)
class QueuedCall:
    """One call in the engine."""

    call_id: CallId
    program: ProgramFacts
    queue: int
    place: int
    quantum_left_ms: float
    waiting_since_ms: float | None
    """None while it runs."""
    service_ms: float = 0.0
    wait_ms: float = 0.0
    window_service_ms: float = 0.0
    window_wait_ms: float = 0.0
    preemptions: int = 0
    queues: list[int] = field(default_factory=list)
    """Every queue it was in, in order."""
    watch: int | None = None
    """The one note of when it will starve that holds; None while it cannot."""

    @property
    def rank(self) -> Rank:
        """Its place among all calls; the smaller runs first."""
        return self.queue, self.place


class CallQueues:
    """All calls of one engine, waiting and running."""

    def __init__(self, policy: Policy, ladder: Ladder, *, beta: float, floor_ms: float = 1.0) -> None:
        self._policy = policy
        self._ladder = Ladder(()) if policy.one_queue else ladder
        self._beta = beta
        self._floor_ms = floor_ms
        self._calls: dict[CallId, QueuedCall] = {}
        self._places = itertools.count()
        self._notes = itertools.count()
        self._starving: list[tuple[float, int, QueuedCall]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, call_id: CallId) -> QueuedCall:
        return self._calls[call_id]

    def get(self, call_id: CallId) -> QueuedCall | None:
        """Return a call that has been added and not removed."""
        return self._calls.get(call_id)

    def add(self, call_id: CallId, program: ProgramFacts, now_ms: float) -> QueuedCall:
        """Let a call enter, waiting.

        Raises:
            ValueError: when it is already in; nothing changes.
        """
        if call_id in self._calls:
            raise ValueError(f"call {call_id} is already queued")
        call = QueuedCall(call_id, program, 0, 0, 0.0, now_ms)
        self._enter(call, self._ladder.queue_of(self._policy.entry_service_ms(program)))
        self._calls[call_id] = call
        self._watch(call)
        return call

    def start(self, call_id: CallId, now_ms: float) -> None:
        """Let a waiting call run."""
        self._stop_waiting(self._calls[call_id], now_ms)

    def wait(self, call_id: CallId, now_ms: float) -> None:
        """Let a call that ran wait again, in its place; one that waits goes on waiting."""
        call = self._calls[call_id]
        if call.waiting_since_ms is None:
            call.waiting_since_ms = now_ms
            self._watch(call)

    def preempt(self, call_id: CallId, now_ms: float) -> None:
        """Put a running call out of the batch: it waits, in its place."""
        self._calls[call_id].preemptions += 1
        self.wait(call_id, now_ms)

    def charge(self, call_id: CallId, step_ms: float) -> bool:
        """Charge one engine step to a call that was in it; tell whether that demoted it."""
        call = self._calls[call_id]
        call.service_ms += step_ms
        call.window_service_ms += step_ms
        call.quantum_left_ms -= step_ms
        demoted = call.quantum_left_ms <= 0
        if demoted:
            self._enter(call, call.queue + 1)
        self._watch(call)
        return demoted

    def promote(self, now_ms: float) -> list[QueuedCall]:
        """Move every waiting call that starves to the best queue and return them."""
        promoted = []
        while self._starving and self._starving[0][0] <= now_ms:
            _, note, call = heapq.heappop(self._starving)
            if call.watch == note:
                self._stop_waiting(call, now_ms)
                call.waiting_since_ms = now_ms
                call.window_service_ms = call.window_wait_ms = 0.0
                self._enter(call, 0)
                promoted.append(call)
        return promoted

    def remove(self, call_id: CallId, now_ms: float) -> QueuedCall:
        """Let a call leave, from wherever it is, and return it with its counters closed."""
        call = self._calls.pop(call_id)
        self._stop_waiting(call, now_ms)
        return call

    def _enter(self, call: QueuedCall, queue: int) -> None:
        call.queue = queue
        call.place = next(self._places)
        call.quantum_left_ms = self._ladder.quantum_ms(queue)
        call.queues.append(queue)

    def _stop_waiting(self, call: QueuedCall, now_ms: float) -> None:
        if call.waiting_since_ms is not None:
            waited = now_ms - call.waiting_since_ms
            call.wait_ms += waited
            call.window_wait_ms += waited
            call.waiting_since_ms = call.watch = None

    def _due_ms(self, call: QueuedCall, since_ms: float) -> float:
        """Return when a call that waits since `since_ms` will have waited beta times what it attained."""
        attained = max(call.program.service_ms + call.window_service_ms, self._floor_ms)
        return since_ms + self._beta * attained - call.program.waiting_ms - call.window_wait_ms

    def _watch(self, call: QueuedCall) -> None:
        """Note when a waiting call will starve; an earlier note of it is void."""
        if call.queue == 0 or call.waiting_since_ms is None:
            return
        call.watch = next(self._notes)
        heapq.heappush(self._starving, (self._due_ms(call, call.waiting_since_ms), call.watch, call))
        if len(self._starving) > 64 + 2 * len(self._calls):  # most notes are void
            self._starving = [entry for entry in self._starving if entry[2].watch == entry[1]]
            heapq.heapify(self._starving)
