"""The gate: which programs may keep their caches in an engine, and which calls wait until there is room.

Order decides little once the caches of all programs no longer fit together: each call then finds its program's cache
evicted, and computes it again. The gate lets in as many programs as fit, and the paper's own means see to it that none
waits for ever: a quantum, demotion, and promotion by wait over service, here applied to programs (beyond the paper).

Rules:
* A program is resident (its cache is kept, through its interrupts) or not. A resident's calls pass; those of the others
  are held, in the order of the policy's rank times the call's blocks: what is scarce is room for a time, so half the
  room makes up for twice the service. Who is promoted, like any that waits too long, is ordered without its size.
* The first held program becomes a resident when its footprint fits in 0.90 of the blocks beside what is claimed; if it
  does not, nobody behind it becomes one. A footprint is what a program's calls and threads have, and what the calls are
  expected to answer, each block once; of it counts what nobody else claims (`room.py`). It is taken anew when a call
  arrives or ends. With no resident at all the first fits. So as long as all fit nobody is ever held.
* A resident leaves at a call boundary only, when it has no call in flight: its calls that come meanwhile are held. It
  leaves when it is over; when it has been away for T_pool and others wait; when it has been resident for T_pool / 0.3
  (to rotate all caches so often costs 30% of the engine's time at most), the second time T_pool / 0.2, then T_pool /
  0.1, the first that waits ranks before it, and fits when all have left of whom that is so, or all residents are; when
  claims exceed 0.98 of the blocks and it ranks last of those that are at a boundary. One that is to leave stays if its
  own held call has become the first. So the first that waits passes after T_pool / 0.1 + T_pool and the longest call,
  at the latest, if it ranks before all residents.
* A held call may visit: pass though its program is no resident, if its own blocks are a 16th of all at most, and fit
  beside all claims. It costs nobody anything now, but what it computes may be evicted and computed again. So what a
  visitor brings back, of what a live program had, or asked for, before, is paid from a budget, 3% of the engine's time.
  While that is overdrawn only those visit that bring nothing back and take a 32nd of the blocks at most: small
  newcomers. The first 32 small calls are looked at for some that may.
* Nobody visits once the same program has been the first that waits for T_pool / 0.3, until it has passed.
* With a tier of KV in CPU memory, larger than the engine's own, "all blocks" are the tier's, but for a visitor's size:
  the engine copies what it computes there, and back when it is needed. What runs at once must fit on the device still
  (`device.py`): a resident's calls may be held, too, until those that run have ended.
* Time is an argument, milliseconds. An event costs O(log held calls), and a look at those residents whose turn is over,
  at those blocks of the call that are new, or that it alone had, and at the blocks of who is the first that waits.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from autellix.engine.policy.call import QueuedCall
from autellix.engine.policy.claims import Chain
from autellix.engine.policy.gate_state import GateState
from autellix.engine.policy.program_cache import GatedCall, ProgramCache
from autellix.schemas.ids import CallId, ProgramId, ThreadId

LOOKED_AT = 32
LONG_GONE_MS = 3_600_000.0  # without a call: then a program is forgotten, as if its end had been told


class Gate(GateState):
    """The programs of one engine, and who of them may keep its cache."""

    def look_by(self, at_ms: float) -> None:
        """See to it that the held calls are looked at by then."""
        self._look_at_ms = min(self._look_at_ms, at_ms)

    def arrive(self, call: QueuedCall, thread_id: ThreadId, prompt: Chain, prompt_tokens: int, now_ms: float) -> bool:
        """Let a call come to the gate; return whether it passes. If not, `passing` tells when: at once, perhaps.

        Args:
            call: The call, waiting.
            thread_id: Its thread.
            prompt: The full blocks of its prompt.
            prompt_tokens: Tokens of the prompt.
            now_ms: When it arrives.
        """
        program = self._programs.pop(call.program_id, None) or ProgramCache(call.program_id)
        self._programs[call.program_id] = program
        program.is_over = False
        blocks = -(-(prompt_tokens + round(self._answer_tokens)) // self._block_tokens)
        gated = GatedCall(call, thread_id, prompt, blocks - len(prompt), self._room.known(prompt), now_ms)
        program.came(gated)
        self._forget_long_gone(now_ms)
        if forgotten := program.forget_contexts(now_ms - self._residents.away_ms):
            self._give_up(program, forgotten)
            self._look_at_ms = now_ms  # what it had is room for others
        program.level = call.level
        self._of_call[call.call_id] = program
        self._room.note(program, prompt)
        self._held.add(gated, self._standing(gated))
        self._residents.called(program)
        if program.is_resident:
            self._room.claim_call(program, gated)
            residents = len(self._residents)
            must_leave = self._must_leave(program, now_ms)
            if len(self._residents) < residents:
                self._look_at_ms = now_ms  # what that one had is room for others
            if not (must_leave or self._device.is_short):
                self._let_pass(program, gated, now_ms)
                return True
        program.wanted = 0 if program.stays else self._room.needed_by(program)
        self._look_at_ms = now_ms
        return False

    def passing(self, now_ms: float) -> list[QueuedCall]:
        """Return the held calls that pass now, in order; each is told once."""
        if not self._held:
            self._visits.wait_behind(None, now_ms)
        if now_ms < self._look_at_ms or not self._held:
            return []
        passing = self._pass_residents(now_ms)
        while gated := self._first_outside():
            program = self._of_call[gated.call.call_id]
            self._visits.wait_behind(program, now_ms)
            if self._becomes_resident(program, gated.call, now_ms):
                passing += self._pass_residents(now_ms, program)
            elif self._visits.may_pass(program, gated, now_ms):
                passing.append(self._let_pass(program, gated, now_ms))
            else:
                break
        if not gated:
            self._visits.wait_behind(None, now_ms)
        while visiting := self._pass_visitors(now_ms):
            passing += visiting
        self._look_at_ms = self._residents.next_change_ms(now_ms)
        return passing

    def reranked(self, call: QueuedCall, now_ms: float) -> None:
        """Note that a held call has another rank."""
        gated = self._of_call[call.call_id].calls[call.call_id]
        self._held.remove(gated)
        self._held.add(gated, self._standing(gated))
        self._look_at_ms = now_ms

    def left(self, call_id: CallId, contexts: Sequence[Chain], answer_tokens: int, now_ms: float) -> None:
        """Note that a call is over, wherever it was.

        Args:
            call_id: The call.
            contexts: The full blocks that it computed, prompt and answer, for each answer; they are free already.
            answer_tokens: Tokens of its answer.
            now_ms: When.
        """
        program = self._of_call.pop(call_id)
        gated = program.calls.pop(call_id)
        has_passed = gated.standing is None
        if has_passed:
            program.in_flight -= 1
            self._device.ended(gated)
        else:
            self._held.remove(gated)
        if any(contexts):
            program.calls_ended += 1
            self._leave_context(program, gated.thread_id, contexts, now_ms)
            self._learn_answer(answer_tokens)
        program.went(gated)
        if program.is_resident or has_passed:
            self._room.release_call(program, gated)
        program.level = gated.call.level
        program.idle_since_ms = now_ms
        self._residents.left(program)
        if program.is_leaving and not program.in_flight:
            self._residents.retire(program)
        if not program.is_resident:
            self._room.expose(contexts)
        self._look_at_ms = now_ms
        self._forget_if_over(program)

    def over(self, program_id: ProgramId, now_ms: float) -> None:
        """Note that a program is over; what its last calls still need stays until they have left."""
        program = self._programs.get(program_id)
        if program:
            program.is_over = True
            self._forget_if_over(program)
            self._look_at_ms = now_ms

    def step(self, step_ms: float, *, prompt_tokens: int, tokens: int, now_ms: float) -> None:
        """Note a step, or several alike.

        Args:
            step_ms: How long it took.
            prompt_tokens: Tokens of prompts in it.
            tokens: All tokens in it.
            now_ms: When it ended.
        """
        knew = self.time.known_pool_ms
        self.time.step(step_ms, prompt_tokens=prompt_tokens, tokens=tokens)
        if self._visits.step(step_ms) or (self.time.known_pool_ms and not knew):
            self._look_at_ms = now_ms

    def _standing(self, gated: GatedCall) -> Any:
        """Return what held calls are ordered by; the smaller comes first, and no two are equal."""
        priority, lo_ms, place = gated.call.rank
        return priority, lo_ms if gated.call.is_promoted else lo_ms * gated.blocks, place

    def _let_pass(self, program: ProgramCache, gated: GatedCall, now_ms: float) -> QueuedCall:
        if not program.is_resident:
            lost, copied = self._room.lost(gated, has_tier=self._device.is_short)
            self._visits.spend(lost * self._block_tokens, copied * self._block_tokens)
        self._device.began(gated)
        self._held.remove(gated)
        program.in_flight += 1
        gated.held_ms = now_ms - gated.arrived_at_ms
        if not program.is_resident:
            self._room.claim_call(program, gated)
        return gated.call

    def _leave_context(
        self, program: ProgramCache, thread_id: ThreadId, contexts: Sequence[Chain], now_ms: float
    ) -> None:
        """Note what a call left for its thread, instead of what an earlier one had."""
        for chain in contexts:
            self._room.note(program, chain)
        if program.is_resident:
            self._room.claim(program, contexts)
        self._give_up(program, program.leave_context(thread_id, contexts, now_ms))

    def _give_up(self, program: ProgramCache, contexts: Sequence[Chain]) -> None:
        """Note that contexts of a program are forgotten."""
        if program.is_resident:
            self._room.release(program, contexts)

    def _pass_residents(self, now_ms: float, newcomer: ProgramCache | None = None) -> list[QueuedCall]:
        """Let residents' held calls pass: a new one's all, or, where the device is short, those that fit in order."""
        if not self._device.is_short:
            return [self._let_pass(newcomer, each, now_ms) for each in newcomer.held] if newcomer else []
        passing = []
        for gated in list(self._held):
            program = self._of_call[gated.call.call_id]
            if not program.stays or self._must_leave(program, now_ms):
                continue
            if not self._device.fits(gated):
                break
            passing.append(self._let_pass(program, gated, now_ms))
        return passing

    def _pass_visitors(self, now_ms: float) -> list[QueuedCall]:
        """Let those of the first small calls visit that may."""
        visiting = []
        for gated in self._held.small(LOOKED_AT):
            program = self._of_call[gated.call.call_id]
            if self._visits.may_pass(program, gated, now_ms):
                visiting.append(self._let_pass(program, gated, now_ms))
        return visiting

    def _first_outside(self) -> GatedCall | None:
        """Return the first held call of a program that is no resident, or is to leave."""
        return next((gated for gated in self._held if not self._of_call[gated.call.call_id].stays), None)

    def _becomes_resident(self, program: ProgramCache, call: QueuedCall, now_ms: float) -> bool:
        """Make the program of the first held call a resident if it fits, beside those whose turn is not over."""
        if program.is_leaving:  # nobody waits before it any more
            program.is_leaving = self._residents.are_too_many
            return not program.is_leaving
        if not self._residents.give_way(program, call.level, now_ms):
            return False
        tokens = self._room.needed_by(program) * self._block_tokens
        self._residents.add(program, now_ms)
        self._turnover.let_in(tokens, now_ms, memory_ms=self.time.pool_ms)
        return True

    def _must_leave(self, program: ProgramCache, now_ms: float) -> bool:
        """Tell whether a resident's new call is held, and let the program leave once it has no call in flight."""
        if not (program.is_leaving or self._residents.is_last_of_too_many(program)):
            first = self._first_outside()
            if first is None or self._held.first_of(program.program_id).standing < first.standing:
                return False
            newcomer = self._of_call[first.call.call_id]
            if not self._residents.turn_is_over(program, newcomer, first.call.level, now_ms):
                return False
        program.is_leaving = True
        if not program.in_flight:
            self._residents.retire(program)
        return True

    def _forget_long_gone(self, now_ms: float) -> None:
        """Look at two programs, one more than come with a call, so that all have their turn."""
        for oldest in list(islice(self._programs.values(), 2)):
            if oldest.calls:
                self._programs[oldest.program_id] = self._programs.pop(oldest.program_id)
            elif oldest.idle_since_ms + LONG_GONE_MS <= now_ms:
                self.over(oldest.program_id, now_ms)

    def _forget_if_over(self, program: ProgramCache) -> None:
        if program.is_over and not program.calls:
            del self._programs[program.program_id]
            self._residents.retire(program)
            self._room.forget(program)
