"""A simulated engine: it takes calls and says when they begin, cease to run and end, one engine step after the other.

Rules:
* A step under way is never changed: what arrives or is aborted meanwhile is looked at when it ends.
* Steps that only decode are taken in one stretch, up to the next thing that can happen: a call has all its tokens or
  has used up its quantum, one that waits starves or may displace another, the blocks run out. What comes of it is what
  the steps one by one bring, to the last bit, since all times lie on a grid (`timing.py`).
"""

from math import inf

from autellix.engine.executor import Account, Held, Load, Notice
from autellix.engine.policy.queues import CallQueues
from autellix.engine.simulation.batch import Batch
from autellix.engine.simulation.calls import Counters, Ended, Happening, SimulatedCall
from autellix.engine.simulation.live import LiveCall
from autellix.engine.simulation.step import Step
from autellix.engine.simulation.stretch import Stretch
from autellix.engine.simulation.timing import EngineOptions, StepTiming, grid_after, on_grid
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import Priorities


class SimulatedEngine:
    """One engine in virtual time.

    What happens comes out of `advance` only. After each of `add`, `abort` and `advance`, ask `next_ms` again.

    Args:
        queues: The order of the calls; the engine's own from now on.
        timing: How long a step takes.
        options: How the engine works.
    """

    def __init__(self, queues: CallQueues, timing: StepTiming, options: EngineOptions) -> None:
        self.counters = Counters()
        self.next_ms = inf
        """When it next has something to tell or to decide; infinity when it is idle."""
        self._queues = queues
        self._timing = timing.exact()
        self._scheduler_ms = on_grid(options.scheduler_ms)
        self._options = options
        self._batch = Batch(queues, options, self.counters)
        self._step: Step | None = None
        self._stretch = Stretch(0.0, 0.0, 0.0)
        self._aborted: list[CallId] = []
        self._happened: list[Happening] = []

    def add(self, call: SimulatedCall, now_ms: float) -> None:
        """Let a call arrive; it waits until the step under way ends.

        Raises:
            ValueError: when it could never run, or is already in; nothing changes.
        """
        self._interrupt(now_ms)
        queued = self._queues.add(call.call_id, call.program_id, call.facts, now_ms)
        live = LiveCall(call, queued, queued.rank)
        try:
            self._batch.add(live, now_ms)
        except ValueError:
            self._queues.remove(call.call_id, now_ms)
            raise
        if hold := self._batch.entrance.why_held(live):
            self._happened.append(Happening(now_ms, Held(call.call_id, **hold._asdict())))

    def abort(self, call_id: CallId, now_ms: float) -> None:
        """Let a call end with the step under way; one that is not in is ignored."""
        if call_id in self._batch.calls:
            self._interrupt(now_ms)
            self._aborted.append(call_id)

    def advance(self, now_ms: float) -> list[Happening]:
        """Let time pass and return what happened up to `now_ms`, in order."""
        while self.next_ms <= now_ms:
            self._reach(self.next_ms)
        if self._step:
            self._pass_steps(self._stretch.steps_over(now_ms))
        happened, self._happened = self._happened, []
        return happened

    def tell(self, notice: Notice, now_ms: float) -> None:
        """Take in what concerns no single call; what it changes shows when a call next enters a queue."""
        if isinstance(notice, Priorities):
            self._queues.learn(notice)
        else:
            self._interrupt(now_ms)
            self._batch.entrance.over(notice.program_id, now_ms)

    @property
    def resident_programs(self) -> list[ProgramId]:
        """Return the programs whose caches are kept; none without a gate."""
        return self._batch.entrance.resident_programs

    @property
    def held_programs(self) -> list[ProgramId]:
        """Return the programs with a call at the gate."""
        return self._batch.entrance.held_programs

    def load(self, now_ms: float) -> Load:
        """Return how busy it is; what its steps did, but for their number, as of the last `advance`."""
        batch, stretch = self._batch, self._stretch
        passed = max(stretch.steps_over(now_ms) - stretch.done, 0) if self._step else 0
        return Load(
            running=len(batch.running),
            waiting=len(batch.waiting),
            kv_usage=batch.memory.usage,
            steps=self.counters.steps + passed,
            **batch.entrance.pressure(now_ms)._asdict(),
        )

    def _interrupt(self, now_ms: float) -> None:
        """Let the stretch end with the step that is under way now; an idle engine begins at once."""
        while self.next_ms < now_ms:
            self._reach(self.next_ms)
        if self._step is None:
            self.next_ms = min(self.next_ms, grid_after(now_ms))
            return
        stretch = self._stretch
        self._pass_steps(min(stretch.steps_over(now_ms), stretch.steps - 1))
        stretch.steps = stretch.done + 1
        self.next_ms = stretch.end_ms(stretch.steps)

    def _reach(self, now_ms: float) -> None:
        """Come to the end of a stretch and begin the next."""
        if self._step:
            self._pass_steps(self._stretch.steps)
            for live in self._batch.end_step(self._step):
                self._end(live, now_ms)
        for call_id in self._aborted:
            if call_id in self._batch.calls:
                self._end(self._batch.calls[call_id], now_ms)
        self._aborted.clear()
        self._step, self.next_ms = None, inf
        if self._batch.calls:
            self._begin(now_ms)

    def _pass_steps(self, steps: int) -> None:
        """Account for the first `steps` steps of the stretch, as far as that is not done."""
        stretch, step = self._stretch, self._step
        if step is None or steps <= stretch.done:
            return
        passed_ms = stretch.end_ms(steps) - stretch.end_ms(stretch.done)
        self.counters.steps += steps - stretch.done
        self.counters.busy_ms += passed_ms
        self.counters.scheduler_ms += self._scheduler_ms * (steps - stretch.done)
        if step.decodes:
            self._batch.pass_rounds(steps - stretch.done, goes_on=steps < stretch.steps)
        stretch.done = steps
        prompt_tokens = sum(tokens for _, tokens in step.chunks)
        decodes = self._batch.decodes.count if step.decodes else 0
        step_ms, ended_ms = passed_ms - step.load_ms, stretch.end_ms(steps)
        self._batch.entrance.step(step_ms, prompt_tokens=prompt_tokens, decodes=decodes, now_ms=ended_ms)
        again = step.recomputed_share(decodes)
        for queued in self._queues.charge(passed_ms, recomputed_ms=on_grid(again * passed_ms)):
            self._batch.rerank(self._batch.calls[queued.call_id], stretch.end_ms(steps))

    def _end(self, live: LiveCall, now_ms: float) -> None:
        """Let a call leave and tell it."""
        held_ms = self._batch.entrance.held_ms(live, now_ms)
        self._batch.remove(live, now_ms)
        queued = self._queues.remove(live.call.call_id, now_ms)
        self.counters.output_tokens += live.generated
        account = Account(
            service_ms=queued.service_ms,
            wait_ms=queued.wait_ms,
            held_ms=held_ms,
            preemptions=queued.preemptions,
            queues=tuple(queued.queues),
            prompt_tokens=live.call.prompt_tokens,
            cached_tokens=live.cached_tokens or 0,
            output_tokens=live.generated,
        )
        self._happened.append(Happening(now_ms, Ended(live.call.call_id, account)))

    def _begin(self, now_ms: float) -> None:
        """Begin a step, and with it as many like it as nothing can happen in."""
        steps_before = self.counters.steps
        step = self._batch.begin_step(now_ms, policy=steps_before % self._options.policy_interval_steps == 0)
        self._happened += [Happening(now_ms, turn) for turn in step.turns]
        if not (step.chunks or self._batch.running):
            self.next_ms = grid_after(self._batch.entrance.look_at_ms)
            return
        decoding = self._batch.decodes if step.decodes else None
        step_ms = self._timing.step_ms(
            prefill_tokens=sum(tokens for _, tokens in step.chunks),
            decoding_calls=decoding.count if decoding else 0,
            context_tokens=sum(live.computed for live, _ in step.chunks) + (decoding.context_tokens if decoding else 0),
        )
        self.counters.swap_ms += step.swap_ms
        growth_ms = self._timing.context_token_ms * decoding.count if decoding else 0.0
        self._step = step
        self._stretch = Stretch(now_ms, step_ms + step.swap_ms + self._scheduler_ms, growth_ms)
        if self._options.jump and step.repeats:
            self._stretch.steps = self._steps_alike(steps_before)
        self.next_ms = self._stretch.end_ms(self._stretch.steps)

    def _steps_alike(self, steps_before: int) -> int:
        """Return how many decode-only steps it takes from here until something can happen."""
        batch, stretch = self._batch, self._stretch
        steps = min(
            batch.decodes.rounds_to_end(), stretch.steps_until(stretch.start_ms + self._queues.next_demotion_ms)
        )
        if batch.waiting or batch.entrance.has_held:
            interval = self._options.policy_interval_steps
            due = stretch.steps_until(self._queues.next_promotion_ms)
            if batch.may_displace:
                due = min(due, stretch.steps_until(stretch.start_ms + self._queues.budget.opens_in_ms))
            steps = min(steps, due + -(steps_before + due) % interval if due < inf else inf)
        if batch.entrance.has_held:
            look_at_ms = min(batch.entrance.look_at_ms, stretch.start_ms + batch.entrance.opens_in_ms)
            steps = min(steps, stretch.steps_until(look_at_ms))
        return batch.decodes.rounds_within(batch.memory.free_blocks, int(steps))
