"""What a gate knows of one engine, and what it tells; what it decides is in `gate.py`."""

from collections.abc import Sequence
from math import inf

from autellix.engine.policy.device import Device
from autellix.engine.policy.held import HeldCalls
from autellix.engine.policy.pool_time import PoolTime
from autellix.engine.policy.pressure import IN_TIER, ON_DEVICE, Hold, Pressure, Turnover
from autellix.engine.policy.program_cache import GatedCall, ProgramCache
from autellix.engine.policy.residents import Residents
from autellix.engine.policy.room import Cache, Room
from autellix.engine.policy.visits import Visits
from autellix.schemas.ids import CallId, ProgramId

ANSWER_TOKENS = 256
"""Expected of a call before any has ended; from then on it counts as one answer among them."""
ANSWERS_REMEMBERED = 32


class GateState:
    """The programs of one engine.

    Args:
        blocks: How many the engine has.
        block_tokens: Tokens in a block.
        cache: The engine's prefix cache.
        tier_blocks: How many a tier in CPU memory has room for, copies of the engine's own among them; 0: none.
    """

    TURN_POOLS: Sequence[float] = (10 / 3, 5.0, 10.0)
    VISIT_SHARE = 0.03
    VISITOR_SHARE = 1 / 16
    ORDER = ""  # what held calls are ordered by, if not by the policy's rank

    def __init__(self, blocks: int, block_tokens: int, cache: Cache, tier_blocks: int = 0) -> None:
        kept = max(blocks, tier_blocks)
        self.time = PoolTime(kept * block_tokens)
        self._block_tokens = block_tokens
        self._device = Device(blocks, tier_blocks)
        self._room = Room(kept, cache)
        self._residents = Residents(self._room, self.time, self.TURN_POOLS)
        shares = {"share": self.VISIT_SHARE, "visitor_share": self.VISITOR_SHARE}
        self._visits = Visits(self._room, self._residents, self._device, self.time, **shares)
        self._programs: dict[ProgramId, ProgramCache] = {}
        """Those whose calls arrived last come last."""
        self._of_call: dict[CallId, ProgramCache] = {}
        self._held = HeldCalls(small=self._visits.blocks_max)
        self._turnover = Turnover()
        self._answer_tokens = float(ANSWER_TOKENS)
        self._answers = 1
        self._look_at_ms = inf

    @property
    def has_held(self) -> bool:
        """Tell whether any call is held."""
        return bool(self._held)

    @property
    def look_at_ms(self) -> float:
        """Return when a held call may pass though nothing happens until then; infinite if that is never."""
        return self._look_at_ms if self._held else inf

    @property
    def opens_in_ms(self) -> float:
        """Return how much engine time must pass until held calls may visit again; 0: none."""
        return self._visits.opens_in_ms if self._held else 0.0

    @property
    def held_calls(self) -> list[GatedCall]:
        """Return the held calls, the first first."""
        return list(self._held)

    def _learn_answer(self, tokens: int) -> None:
        """Expect of calls what the latest have answered, on average."""
        self._answers = min(self._answers + 1, ANSWERS_REMEMBERED)
        self._answer_tokens += (tokens - self._answer_tokens) / self._answers

    def is_held(self, call_id: CallId) -> bool:
        """Tell whether a call has not passed."""
        return self._of_call[call_id].calls[call_id].standing is not None

    def held_ms(self, call_id: CallId, now_ms: float) -> float:
        """Return how long a call was held until it passed, or until now."""
        gated = self._of_call[call_id].calls[call_id]
        return gated.held_ms if gated.standing is None else now_ms - gated.arrived_at_ms

    def why_held(self, call_id: CallId) -> Hold:
        """Return why a held call has not passed."""
        program = self._of_call[call_id]
        gated = program.calls[call_id]
        wanted, free, where = self._room.needed_by(program), self._residents.free, ""
        if self._device.is_short:
            where = IN_TIER
        if program.stays:
            wanted, free, where = self._device.needed(gated), self._device.free, ON_DEVICE
        tokens = wanted * self._block_tokens, int(max(0.0, free)) * self._block_tokens
        ahead = self._residents.ahead_of(gated) if program.stays else self._held.programs_ahead_of(gated)
        return Hold(self.ORDER or gated.call.order, ahead, *tokens, where)

    @property
    def resident_programs(self) -> list[ProgramId]:
        """Return the residents."""
        return self._residents.ids

    @property
    def held_programs(self) -> list[ProgramId]:
        """Return the programs with a held call, each once, the first first."""
        return self._held.programs

    def pressure(self, now_ms: float) -> Pressure:
        """Return how scarce room is."""
        held = self.held_programs
        held_tokens = sum(self._programs[each].wanted for each in held) * self._block_tokens
        return Pressure(
            programs_resident=len(self._residents),
            programs_held=len(held),
            held_tokens=held_tokens,
            pool_ms=self.time.known_pool_ms,
            expected_wait_ms=self._turnover.wait_ms(held_tokens, now_ms, memory_ms=self.time.pool_ms),
        )
