"""What the instances of the service of durable calls say of themselves, added up."""

from collections.abc import Mapping
from typing import Final

from autellix.schemas.messages import DurableLoad
from autellix.services.metrics.numbers import LABELS_MAX, Counter

FORGET_MS: Final = 600_000.0
FINISHED, FAILED = "finished", "failed"


class DurableNumbers:
    """The numbers, as its public fields.

    An instance counts from its start. What it has more than when it was last heard is added here, so an instance that
    dies takes nothing away, and one that starts anew, under another name, begins at nothing.
    """

    def __init__(self, silence_ms: float) -> None:
        self._silence_ms = silence_ms
        self._loads: dict[str, tuple[DurableLoad, float]] = {}
        """By instance, the last report, and when it came; the latest last."""
        self.tries = 0
        self.results = Counter()
        """By outcome."""

    def reported(self, load: DurableLoad, now_ms: float) -> None:
        """Take in a heartbeat."""
        known, _ = self._loads.pop(load.instance, (None, 0.0))
        if known and known.tries > load.tries:
            load = known  # an older one that came later
        self.tries += load.tries - (known.tries if known else 0)
        self.results.add(FINISHED, load.finished - (known.finished if known else 0))
        self.results.add(FAILED, load.failed - (known.failed if known else 0))
        self._loads[load.instance] = (load, now_ms)
        if len(self._loads) > LABELS_MAX:
            del self._loads[next(iter(self._loads))]

    def tick(self, now_ms: float) -> None:
        """Forget who is silent for long."""
        for instance, (_, heard_at_ms) in list(self._loads.items()):
            if now_ms - heard_at_ms > FORGET_MS:
                del self._loads[instance]

    def gauges(self, now_ms: float) -> Mapping[str, float]:
        """Return what is so now, by name: `up` instances that can keep calls, `trying` and `pending` calls."""
        loads = [load for load, heard_at_ms in self._loads.values() if now_ms - heard_at_ms <= self._silence_ms]
        return {
            "up": sum(load.available for load in loads),
            "trying": sum(load.trying for load in loads),
            "pending": loads[-1].pending if loads else 0,
        }
