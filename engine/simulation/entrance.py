"""What calls of a simulated engine come through before they wait for a slot: a gate, or nothing."""

from math import inf

from autellix.engine.policy import gate_named
from autellix.engine.policy.pressure import Hold, Pressure
from autellix.engine.simulation.live import LiveCall
from autellix.engine.simulation.memory import KvMemory
from autellix.engine.simulation.timing import EngineOptions
from autellix.schemas.ids import CallId, ProgramId


class Entrance:
    """The entrance of one engine.

    Args:
        options: How the engine works.
        memory: Its blocks, and what is cached in them.
    """

    def __init__(self, options: EngineOptions, memory: KvMemory) -> None:
        self._block_size = options.limits.block_size
        sizes = {"blocks": memory.blocks, "block_tokens": self._block_size, "tier_blocks": memory.tier_blocks}
        self._gate = gate_named(options.gate, cache=memory, **sizes)

    @property
    def has_held(self) -> bool:
        """Tell whether any call is held."""
        return self._gate is not None and self._gate.has_held

    @property
    def look_at_ms(self) -> float:
        """Return when a held call may pass though nothing happens until then; infinite if that is never."""
        return self._gate.look_at_ms if self._gate else inf

    @property
    def opens_in_ms(self) -> float:
        """Return how much engine time must pass until held calls may visit; infinite if they may now, or never."""
        return (self._gate.opens_in_ms if self._gate else 0.0) or inf

    def arrive(self, live: LiveCall, now_ms: float) -> bool:
        """Let a call come; return whether it passes at once."""
        if self._gate is None:
            return True
        prompt_tokens = live.call.prompt_tokens
        prompt = live.call.keys[: prompt_tokens // self._block_size]
        return self._gate.arrive(live.queued, live.call.thread_id, prompt, prompt_tokens, now_ms)

    def passing(self, now_ms: float) -> list[CallId]:
        """Return the held calls that pass now."""
        return [queued.call_id for queued in self._gate.passing(now_ms)] if self._gate else []

    def is_held(self, live: LiveCall) -> bool:
        """Tell whether a call has not passed."""
        return self._gate is not None and self._gate.is_held(live.call.call_id)

    def why_held(self, live: LiveCall) -> Hold | None:
        """Return why a call has not passed; None: it has."""
        return self._gate.why_held(live.call.call_id) if self._gate and self.is_held(live) else None

    def held_ms(self, live: LiveCall, now_ms: float) -> float:
        """Return how long a call was held until it passed, or until now."""
        return self._gate.held_ms(live.call.call_id, now_ms) if self._gate else 0.0

    def reranked(self, live: LiveCall, now_ms: float) -> None:
        """Note that a held call has another rank."""
        if self._gate:
            self._gate.reranked(live.queued, now_ms)

    def left(self, live: LiveCall, now_ms: float) -> None:
        """Note that a call is over and has given its blocks back."""
        if self._gate:
            had = live.tokens - 1 if live.generated else live.computed  # a preempted call's blocks may still be cached
            context = live.call.keys[: had // self._block_size]
            self._gate.left(live.call.call_id, [context], live.generated, now_ms)

    def over(self, program_id: ProgramId, now_ms: float) -> None:
        """Note that a program is over."""
        if self._gate:
            self._gate.over(program_id, now_ms)

    def step(self, step_ms: float, *, prompt_tokens: int, decodes: int, now_ms: float) -> None:
        """Note a step, or several alike."""
        if self._gate:
            self._gate.step(step_ms, prompt_tokens=prompt_tokens, tokens=prompt_tokens + decodes, now_ms=now_ms)

    def copied(self, copy_ms: float, tokens: int) -> None:
        """Note that tokens came back from the CPU tier."""
        if self._gate:
            self._gate.time.copied(copy_ms, tokens)

    @property
    def resident_programs(self) -> list[ProgramId]:
        """Return the programs whose caches are kept; none without a gate."""
        return self._gate.resident_programs if self._gate else []

    @property
    def held_programs(self) -> list[ProgramId]:
        """Return the programs with a held call."""
        return self._gate.held_programs if self._gate else []

    def pressure(self, now_ms: float) -> Pressure:
        """Return how scarce room is."""
        return self._gate.pressure(now_ms) if self._gate else Pressure()
