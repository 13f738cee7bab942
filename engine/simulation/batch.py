"""Chooses the calls of each step as vLLM does.

Rules:
* Before a step the policy may put running calls out (`displacement.py`); the calls in a step are then, in this order
  and as far as its token budget goes: decodes, a token each; unfinished prefills; waiting calls, the best rank first.
* A waiting call is let in if its whole prompt fits in the free blocks; the first that does not fit ends the step's
  admissions. It is not tried again until something changed: a decode alone makes no room.
* A running call that needs a block when none is free takes those of the worst running one, itself perhaps; in such a
  step nothing that waits is let in.
* A call preempted by recompute gives its blocks up; when it is let in again, its prompt and what it has generated are
  its prompt. A call that is swapped out goes on where it was.
* Without chunked prefill a step is either whole prefills or decodes, prefills first; a prompt larger than the budget
  has a step for itself.
"""

from collections.abc import Iterable

from autellix.engine.executor import Preempted
from autellix.engine.policy.displacement import displacements
from autellix.engine.policy.queues import CallQueues
from autellix.engine.simulation.calls import Counters
from autellix.engine.simulation.decoding import Decodes
from autellix.engine.simulation.entrance import Entrance
from autellix.engine.simulation.live import LiveCall, Ranked
from autellix.engine.simulation.memory import KvMemory
from autellix.engine.simulation.step import Step
from autellix.engine.simulation.timing import EngineOptions
from autellix.schemas.ids import CallId


class Batch:
    """The calls that wait and run in one engine.

    Args:
        queues: The order of the calls.
        options: How the engine works.
        counters: Where to count.
    """

    def __init__(self, queues: CallQueues, options: EngineOptions, counters: Counters) -> None:
        self.calls: dict[CallId, LiveCall] = {}
        self.waiting = Ranked()
        self.running = Ranked()
        self.decodes = Decodes(options.limits.block_size)
        self.memory = KvMemory(options, counters)
        self._queues = queues
        self._options = options
        self._counters = counters
        self.entrance = Entrance(options, self.memory)
        self._prefilling: list[LiveCall] = []
        self._step = Step(0.0)
        self._blocked = False
        """Whether the first that waits was found not to fit, and nothing has changed since."""
        self._changed = False
        """Whether anything happened since the policy was applied last."""

    @property
    def may_displace(self) -> bool:
        """Whether the policy might put a running call out, once the budget lets it."""
        if not (self._changed and self.waiting and self.running):
            return False
        if self._free_slots:  # the first takes one of them; another behind it may displace
            return len(self.waiting) > self._free_slots
        return self.waiting.calls[0].queued.outranks(self.running.calls[-1].queued)

    def add(self, live: LiveCall, now_ms: float) -> None:
        """Let a new call wait.

        Raises:
            ValueError: when it could never run.
        """
        self.memory.check(live)
        self.calls[live.call.call_id] = live
        self._let_wait([live.call.call_id] if self.entrance.arrive(live, now_ms) else self.entrance.passing(now_ms))

    def _let_wait(self, passing: Iterable[CallId]) -> None:
        for call_id in passing:
            self.waiting.add(self.calls[call_id])
            self._note_change()

    def remove(self, live: LiveCall, now_ms: float) -> None:
        """Take a call out, from wherever it is, with what it has."""
        del self.calls[live.call.call_id]
        if live.is_running:
            self._stop(live)
        elif not self.entrance.is_held(live):
            self.waiting.remove(live)
        self.memory.release(live)
        self.entrance.left(live, now_ms)
        self._note_change()

    def rerank(self, live: LiveCall, now_ms: float) -> None:
        """Move a call to the rank it has now."""
        if live.is_running:
            self.running.rerank(live)
            self._changed = True
        elif self.entrance.is_held(live):
            self.entrance.reranked(live, now_ms)
        else:
            self.waiting.rerank(live)
            self._note_change()

    def begin_step(self, now_ms: float, *, policy: bool) -> Step:
        """Choose the next step and take the blocks it needs.

        Args:
            now_ms: When it begins.
            policy: Whether the policy has a say in it.
        """
        self._step = Step(now_ms)
        self._let_wait(self.entrance.passing(now_ms))
        if policy:
            self._apply_policy()
        if self._options.chunked_prefill:
            self._choose_mixed()
        else:
            self._choose_one_kind()
        return self._step

    def pass_rounds(self, rounds: int, *, goes_on: bool) -> None:
        """Let rounds of the decodes pass, and give them the blocks for those that begin.

        Args:
            rounds: How many.
            goes_on: Whether the same calls have a further round right after them.
        """
        self.memory.extend_decodes(self.decodes.blocks_due(rounds if goes_on else rounds - 1))
        self.decodes.advance(rounds)

    def end_step(self, step: Step) -> list[LiveCall]:
        """Take in the tokens of a step's prefills and return all calls that have all their tokens."""
        ended = self.decodes.take_ended()
        for live, tokens in step.chunks:
            live.computed += tokens
            if live.computed == live.tokens:
                self._prefilling.remove(live)
                live.generated += 1
                if live.generated == live.call.output_tokens:
                    ended.append(live)
                else:
                    self.decodes.add(live)
        if step.chunks:
            self._note_change()
        return ended

    def _note_change(self) -> None:
        """Note that something happened by which a waiting call may fit, or another may be the first."""
        self._blocked = False
        self._changed = True

    def _apply_policy(self) -> None:
        for queued in self._queues.promote(self._step.began_ms):
            self.rerank(self.calls[queued.call_id], self._step.began_ms)
        if not self.may_displace:
            self._changed = False
        if not self._changed or self._queues.budget.opens_in_ms:
            return
        self._changed = False
        yielding = [live for live in reversed(self.running.calls) if live in self.decodes]
        victims = displacements(
            self.waiting.calls,
            yielding,
            outranks=lambda newcomer, victim: newcomer.queued.outranks(victim.queued),
            fits=self.memory.room(self._free_slots, map(self._blocks_of, yielding)),
            free_slots=self._free_slots,
            most=self._options.preemptions_per_step_max,
        )
        for victim in victims:
            self._preempt(victim)

    def _blocks_of(self, live: LiveCall) -> int:
        """Return how many blocks a running call has."""
        return self.memory.blocks_of(self.decodes.computed(live) if live in self.decodes else live.computed)

    @property
    def _free_slots(self) -> int:
        return self._options.limits.slots - len(self.running)

    def _choose_mixed(self) -> None:
        put_out = self._grow_decodes()
        budget = self._options.limits.max_num_batched_tokens - self.decodes.count
        for live in sorted(self._prefilling, key=lambda live: live.stands_at):
            tokens = min(live.tokens - live.computed, budget)
            if tokens > 0 and live.is_running:
                put_out |= self._make_room(live, live.computed + tokens)
            if tokens > 0 and live.is_running:
                self._compute(live, tokens)
                budget -= tokens
            else:
                self._queues.leave(live.call.call_id)
        if not put_out:
            self._admit(budget)

    def _choose_one_kind(self) -> None:
        self._admit(self._options.limits.max_num_batched_tokens, decodes=False)
        self._step.decodes = not self._step.chunks
        if self._step.decodes and not self._grow_decodes():
            self._admit(self._options.limits.slots, prefills=False)
        change = self._queues.join if self._step.decodes else self._queues.leave
        for live in self.running.calls:
            if live in self.decodes:
                change(live.call.call_id)

    def _admit(self, budget: int, *, prefills: bool = True, decodes: bool = True) -> None:
        """Let waiting calls in; the first that may not, or does not fit, ends it."""
        while budget > 0 and self.waiting and self._free_slots > 0 and not self._blocked:
            live = self.waiting.calls[0]
            if not (decodes if live.can_decode else prefills):
                return
            free = self.memory.free_blocks
            if self.memory.needed(live, free) > free:
                self._blocked = True
                return
            tokens = live.tokens - self.memory.at_hand(live)
            if self._options.chunked_prefill:
                tokens = min(tokens, budget)
            elif tokens > budget and self._step.chunks:
                return
            self._let_in(live, tokens)
            budget -= tokens

    def _let_in(self, live: LiveCall, tokens: int) -> None:
        """Let a waiting call run, with so many tokens to compute in this step."""
        goes_on = live.can_decode
        self.waiting.remove(live)
        copied_before, copy_ms = self._counters.loaded_tokens, self.memory.let_in(live)
        self._step.swap_ms += copy_ms
        if copied := self._counters.loaded_tokens - copied_before:
            self._step.load_ms += copy_ms
            self.entrance.copied(copy_ms, copied)
        self._queues.start(live.call.call_id, self._step.began_ms)
        self.running.add(live)
        self._step.begin(live, self._counters)
        if goes_on:
            self.memory.extend(live, live.tokens)
            self.decodes.add(live)
            self._queues.join(live.call.call_id)
        else:
            self._prefilling.append(live)
            self._compute(live, tokens)

    def _compute(self, live: LiveCall, tokens: int) -> None:
        """Put tokens of a prefill into the step; the blocks for them must be free."""
        self.memory.extend(live, live.computed + tokens)
        self.memory.fill(live, live.computed + tokens)
        self._queues.join(live.call.call_id)
        self._step.chunks.append((live, tokens))
        self._counters.prefill_tokens += tokens

    def _grow_decodes(self) -> bool:
        """Give the decodes their blocks for this round; tell whether that put a call out."""
        due = self.decodes.due()
        put_out = False
        if len(due) <= self.memory.free_blocks:
            self.memory.extend_decodes(len(due))
        else:
            put_out = self._grow_one_by_one(due)
        self._step.grown = True
        return put_out

    def _grow_one_by_one(self, due: Iterable[LiveCall]) -> bool:
        """Give each decode that is due its block, the best first; tell whether that put a call out."""
        put_out = False
        for live in sorted(due, key=lambda live: live.stands_at):
            if live.is_running:
                computed = self.decodes.computed(live)
                self.memory.settle(live, computed)
                put_out |= self._make_room(live, computed + 1)
            if live.is_running:
                self.memory.extend(live, computed + 1)
        return put_out

    def _make_room(self, live: LiveCall, tokens: int) -> bool:
        """Preempt the worst until a running call's first `tokens` fit, or it is out itself; tell whether any is."""
        put_out = False
        while live.is_running and self.memory.missing(live, tokens) > self.memory.free_blocks:
            self._preempt(self.running.calls[-1])
            put_out = True
        return put_out

    def _preempt(self, live: LiveCall) -> None:
        if self._step.grown and live in self.decodes:
            self.memory.settle(live, self.decodes.computed(live) + 1)
        self._stop(live)
        self._step.swap_ms += self.memory.put_out(live)
        self._queues.leave(live.call.call_id)
        self._queues.preempt(live.call.call_id, self._step.began_ms)
        self.waiting.add(live)
        self._note_change()
        self._counters.preemptions += 1
        self._step.turns.append(Preempted(live.call.call_id))

    def _stop(self, live: LiveCall) -> None:
        """Take a call out of the running ones; its blocks are still its own."""
        self.running.remove(live)
        if live in self.decodes:
            self.decodes.remove(live)
        elif live in self._prefilling:
            self._prefilling.remove(live)
