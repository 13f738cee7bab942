"""The calls of one engine in the queues of the ladder (paper section 4.2.2, Algorithm 1).

Rules:
* A call enters the queue that holds its program's attained service, at the back, with that queue's quantum.
* Service is time on the engine, prefill included: every call in a step is charged the whole step (the paper says
  neither). A call whose quantum is used up goes to the back of the next queue with that queue's quantum, once a step
  at most; in the last queue the quantum never ends. The next queue is worse, but for `gittins`, which may go up, too.
* A client's priority comes before the queue: the calls of each priority have the ladder for themselves.
* Within a queue the order is that of entering it. A preempted call keeps its place; so does a running one, demoted or
  not, until a better one needs its slot (`displacement.py`).
* A waiting call is promoted to the back of the best queue when (W_p + W_c) / max(T_p + T_c, floor) >= beta. W is time
  waited, T time attained; _p is its program's (ended calls only), _c the call's own. The floor avoids dividing by zero;
  the bound of the call's queue counts in its place where it is more: not attained, but expected service (`gittins`).
  Only the call's *window* counters are then reset; the *lifetime* ones are what its program is charged (the paper has
  one counter, which line 29 resets although line 4 still has to charge it to the program).
* A promoted call goes first among those that wait for a slot, and displaces nobody whom it would not have displaced
  before: when all have waited too long, they would put each other out in turn, and throw away what they computed.
* A step that was under way when its call was preempted is charged to the waiting call, which may sink by it.
* A ladder that is fitted anew moves no call: each keeps the bound it stands at, later moves follow the new ladder.
* Time is an argument, in milliseconds of any clock that does not go back. Each event costs O(log n); a step costs O(1)
  however many calls are in it: the engine keeps one clock of service, and a call reads it when it joins and leaves.
"""

import itertools

from autellix.engine.policy.base import Policy
from autellix.engine.policy.budget import RecomputeBudget
from autellix.engine.policy.call import Queue, QueuedCall
from autellix.engine.policy.fitting import LadderFitter
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.notes import Notes
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import Priorities, ProgramFacts

FLOOR_MS = 1.0
HISTORY_MAX = 256
"""Queues that are told of a call; the oldest go first."""


class CallQueues:
    """All calls of one engine, waiting and running.

    Args:
        policy: Says where a call enters.
        ladder: The queues; with a `fitter`, those to begin with.
        beta: Waited over attained time at which a call is promoted.
        fitter: Fits the ladder to what ends; None: the ladder stays.
    """

    def __init__(self, policy: Policy, ladder: Ladder, *, beta: float, fitter: LadderFitter | None = None) -> None:
        self.ladder = ladder
        self.budget = RecomputeBudget()
        """For displacing: who asks for displacements asks here first."""
        self._policy = policy
        self._beta = beta
        self._fitter = fitter
        self._calls: dict[CallId, QueuedCall] = {}
        self._places = itertools.count()
        self._clock_ms = 0.0
        """The engine's service clock: the sum of all steps."""
        self._starving = Notes(lambda call, note: call.starvation_note == note)
        self._expiring = Notes(lambda call, note: call.quantum_note == note)

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, call_id: CallId) -> QueuedCall:
        return self._calls[call_id]

    def get(self, call_id: CallId) -> QueuedCall | None:
        """Return a call that has been added and not removed."""
        return self._calls.get(call_id)

    @property
    def next_promotion_ms(self) -> float:
        """Return a time before which nobody starves."""
        return self._starving.first_ms()

    @property
    def next_demotion_ms(self) -> float:
        """Return how much more service it takes until a call in the batch has used up its quantum."""
        return self._expiring.first_ms() - self._clock_ms

    def add(
        self, call_id: CallId, program_id: ProgramId, program: ProgramFacts, now_ms: float, *, priority: int = 0
    ) -> QueuedCall:
        """Let a call enter, waiting.

        Args:
            call_id: Its id.
            program_id: Its program's.
            program: What the program has attained and waited.
            now_ms: When it arrives.
            priority: The smaller goes before every call of a larger one, in whatever queue.

        Raises:
            ValueError: when it is already in; nothing changes.
        """
        if call_id in self._calls:
            raise ValueError(f"call {call_id} is already queued")
        call = QueuedCall(call_id, program_id, program, now_ms, priority)
        if self._fitter:
            call.entry_ms = self._policy.entry_service_ms(program)
        self._enter_by_service(call, self._policy.enter(call, self.ladder))
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

    def join(self, call_id: CallId) -> None:
        """Let a call be part of each step from the next charge on."""
        call = self._calls[call_id]
        if call.in_batch_since_ms is None:
            call.in_batch_since_ms = self._clock_ms
            self._expire(call)

    def leave(self, call_id: CallId) -> None:
        """Let a call be part of no step from the next charge on."""
        call = self._calls[call_id]
        if call.in_batch_since_ms is not None:
            self._settle(call)
            call.due_ms -= self._clock_ms
            call.in_batch_since_ms = call.quantum_note = None
            self._watch(call)

    def charge(self, step_ms: float, *, recomputed_ms: float = 0.0) -> list[QueuedCall]:
        """Charge a step to every call in the batch and return those that it demoted.

        Args:
            step_ms: How long it took.
            recomputed_ms: The part of it in which preempted calls computed again what they had.
        """
        self.budget.step(step_ms, recomputed_ms)
        self._clock_ms += step_ms
        demoted = self._expiring.due(self._clock_ms)
        for call in demoted:
            self._settle(call)
            self._enter_by_service(call, self._policy.demote(call, self.ladder))
            self._expire(call)
            self._watch(call)
        return demoted

    def promote(self, now_ms: float) -> list[QueuedCall]:
        """Move every waiting call that starves to the best queue and return them."""
        promoted = []
        for call in self._starving.due(now_ms):
            self._settle(call)
            if self._due_ms(call) > now_ms:  # it was charged meanwhile
                self._watch(call)
                continue
            self._stop_waiting(call, now_ms)
            call.waiting_since_ms = now_ms
            call.window_service_ms = call.window_wait_ms = 0.0
            self._enter(call, self._policy.promote(call, self.ladder))
            call.is_promoted = True
            self._expire(call)
            promoted.append(call)
        return promoted

    def remove(self, call_id: CallId, now_ms: float) -> QueuedCall:
        """Let a call leave, from wherever it is, and return it with its counters closed."""
        self.leave(call_id)
        call = self._calls.pop(call_id)
        self._stop_waiting(call, now_ms)
        if self._fitter:
            attained_ms = call.entry_ms + call.service_ms
            self.ladder = self._fitter.ended(call.program_id, attained_ms, call.service_ms) or self.ladder
        return call

    def learn(self, priorities: Priorities) -> None:
        """Let the policy take in what was learnt; no call moves by it, later moves follow it."""
        self._policy.learn(priorities)

    def _enter_by_service(self, call: QueuedCall, queue: Queue) -> None:
        self._enter(call, queue)
        call.is_promoted = False
        call.earned_ms = self._policy.earned_ms(call)

    def _enter(self, call: QueuedCall, queue: Queue) -> None:
        call.order = self._policy.order
        call.lo_ms = queue.lo_ms
        call.due_ms = queue.quantum_ms
        call.place = next(self._places)
        call.queues.append(queue.number)
        if len(call.queues) > HISTORY_MAX:
            del call.queues[0]

    def _expire(self, call: QueuedCall) -> None:
        """Note when a call in the batch will have used up the quantum it has left."""
        if call.in_batch_since_ms is not None:
            call.due_ms += self._clock_ms
            call.quantum_note = self._expiring.add(call.due_ms, call)

    def _settle(self, call: QueuedCall) -> None:
        """Charge a call for the steps that it was part of up to now."""
        if call.in_batch_since_ms is not None:
            attained = self._clock_ms - call.in_batch_since_ms
            call.service_ms += attained
            call.window_service_ms += attained
            call.in_batch_since_ms = self._clock_ms

    def _stop_waiting(self, call: QueuedCall, now_ms: float) -> None:
        if call.waiting_since_ms is not None:
            waited = now_ms - call.waiting_since_ms
            call.wait_ms += waited
            call.window_wait_ms += waited
            call.waiting_since_ms = call.starvation_note = None

    def _due_ms(self, call: QueuedCall) -> float:
        """Return when a waiting call will have waited beta times what it attained."""
        attained = max(call.program.service_ms + call.window_service_ms, call.lo_ms, FLOOR_MS)
        waited = call.program.waiting_ms + call.window_wait_ms
        return (call.waiting_since_ms or 0.0) + self._beta * attained - waited

    def _watch(self, call: QueuedCall) -> None:
        """Note when a waiting call will starve; an earlier note of it is void."""
        if call.lo_ms > 0 and call.waiting_since_ms is not None and self._policy.on_ladder:
            self._settle(call)
            call.starvation_note = self._starving.add(self._due_ms(call), call)
        else:
            call.starvation_note = None
