"""How much of an engine's time a call takes.

An engine runs as many calls at a time as it has slots, so a call takes the time that it runs for over the slots. For
each model the mean is kept, in which the newest calls count most.
"""

FOLLOW = 0.05
"""Weight of the newest call in the running mean."""


class CallWork:
    """What calls took, by model."""

    def __init__(self) -> None:
        self._work_ms: dict[str, float] = {}

    def ended(self, model: str, service_ms: float, slots: int) -> None:
        """Learn from a call that ended on an engine with so many slots."""
        work_ms = service_ms / slots
        known_ms = self._work_ms.get(model, work_ms)
        self._work_ms[model] = known_ms + FOLLOW * (work_ms - known_ms)

    def of(self, model: str) -> float:
        """Return what a call takes, in ms of an engine's time; 0 while none has ended."""
        return self._work_ms.get(model, 0.0)
