"""The gate as the field has it, to compare with: the smallest program first, and a timer against starvation.

ThunderAgent and the gates after it admit programs by footprint and resume the smallest that fit; a large one waits
until a timer forces it in, after 30 minutes. This one has the same exact footprints and the same patience with absent
programs as ours, so that only the order, the turns and the visits differ.
"""

from typing import Any

from autellix.engine.policy.call import QueuedCall
from autellix.engine.policy.gate import Gate
from autellix.engine.policy.program_cache import GatedCall

RESUME_AFTER_MS = 1_800_000.0


class PlainGate(Gate):
    """Holds the large in favour of the small, for half an hour at most; once in, a program stays."""

    TURN_POOLS = (float("inf"),)
    VISIT_SHARE = 0.0
    ORDER = "size"

    def passing(self, now_ms: float) -> list[QueuedCall]:
        """Return the held calls that pass now, in order; each is told once."""
        overdue = [gated for gated in self.held_calls if not gated.is_forced and self._forced_at_ms(gated) <= now_ms]
        for gated in overdue:
            gated.is_forced = True
            self.reranked(gated.call, now_ms)
        passing = super().passing(now_ms)
        waiting = (self._forced_at_ms(gated) for gated in self.held_calls if not gated.is_forced)
        self.look_by(min(waiting, default=float("inf")))
        return passing

    def _standing(self, gated: GatedCall) -> Any:
        size = 0 if gated.is_forced else gated.blocks
        return not gated.is_forced, size, gated.call.place

    def _forced_at_ms(self, gated: GatedCall) -> float:
        return gated.arrived_at_ms + RESUME_AFTER_MS
