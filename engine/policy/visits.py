"""Visits: calls that pass though their programs are no residents; the rule is in `gate.py`."""

from autellix.engine.policy.budget import RecomputeBudget
from autellix.engine.policy.device import Device
from autellix.engine.policy.pool_time import PoolTime
from autellix.engine.policy.program_cache import GatedCall, ProgramCache
from autellix.engine.policy.residents import SHRINK_ABOVE, Residents
from autellix.engine.policy.room import Room

CLOSE_AFTER_POOLS = 10 / 3
"""T_pools that others may pass the first that waits: as long as a first turn."""


class Visits:
    """Who may visit one engine.

    Args:
        room: The blocks, and who claims them.
        residents: Whose calls go before those of visitors where what runs is short of room.
        device: What runs.
        time: How long it takes to bring back what was evicted.
        share: Of the engine's time, what visits may cost; 0: nobody visits.
        visitor_share: Of the device, what a visitor takes at most; half of it if it brings back nothing, while the
            budget is overdrawn.
    """

    def __init__(
        self,
        room: Room,
        residents: Residents,
        device: Device,
        time: PoolTime,
        *,
        share: float,
        visitor_share: float,
    ) -> None:
        self._room = room
        self._residents = residents
        self._device = device
        self._time = time
        self._share = share
        self.blocks_max = visitor_share * device.blocks
        """What a visitor takes at most."""
        self._first: ProgramCache | None = None
        self._first_since_ms = 0.0
        self._budget = RecomputeBudget(share)

    @property
    def opens_in_ms(self) -> float:
        """Return how much engine time must pass until calls may visit again; 0: none."""
        return self._budget.opens_in_ms

    def wait_behind(self, first: ProgramCache | None, now_ms: float) -> None:
        """Note which program is the first that waits, if any: it has so much time until nobody passes it any more."""
        if first is not self._first:
            self._first, self._first_since_ms = first, now_ms

    def may_pass(self, program: ProgramCache, gated: GatedCall, now_ms: float) -> bool:
        """Tell whether a held call may visit."""
        if program.is_resident or not self._share or gated.blocks > self.blocks_max:
            return False
        if self._first and program is not self._first and self._waited_long(now_ms):
            return False
        if self._room.used + self._room.needed_by_call(gated) > SHRINK_ABOVE * self._room.blocks:
            return False
        if self._device.is_short and (self._residents.held or not self._device.fits(gated)):
            return False
        return not self._budget.opens_in_ms or not (gated.blocks > self.blocks_max / 2 or self._brings_back(gated))

    def spend(self, tokens: int, copied_tokens: int) -> None:
        """Take off what a visitor brings back: so many tokens to compute again, and so many to copy."""
        self._budget.spend(tokens * self._time.token_ms + copied_tokens * self._time.copy_token_ms)

    def step(self, step_ms: float) -> bool:
        """Take in a step; tell whether calls may visit again, and might not before."""
        was_open = not self._budget.opens_in_ms
        self._budget.step(step_ms)
        return not was_open and not self._budget.opens_in_ms

    def _waited_long(self, now_ms: float) -> bool:
        return now_ms - self._first_since_ms >= CLOSE_AFTER_POOLS * self._time.pool_ms

    def _brings_back(self, gated: GatedCall) -> bool:
        return any(self._room.lost(gated, has_tier=self._device.is_short))
