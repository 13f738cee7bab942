"""A stretch: steps with the same calls in them, each longer than the one before by the same time."""

from dataclasses import dataclass
from math import ceil, inf, sqrt


@dataclass(slots=True)
class Stretch:
    """Steps from `start_ms` on; the contexts grow by a token a call and step, so the times are a quadratic sum."""

    start_ms: float
    first_ms: float
    """The first step."""
    growth_ms: float
    """What each step takes longer than the one before it."""
    steps: int = 1
    done: int = 0
    """Steps that are over and accounted for."""

    def end_ms(self, steps: int) -> float:
        """Return when the first `steps` steps are over."""
        return self.start_ms + self.first_ms * steps + self.growth_ms * (steps * (steps - 1) // 2)

    def steps_until(self, at_ms: float) -> float:
        """Return after how many steps, one at least, it is `at_ms` or later; infinite if that is never."""
        if at_ms == inf:
            return inf
        steps = max(1, ceil(self._about(at_ms - self.start_ms)))
        while self.end_ms(steps) < at_ms:
            steps += 1
        while steps > 1 and self.end_ms(steps - 1) >= at_ms:
            steps -= 1
        return steps

    def steps_over(self, at_ms: float) -> int:
        """Return how many steps are over at `at_ms`."""
        steps = self.steps_until(at_ms)
        if steps > self.steps:
            return self.steps
        return int(steps) - (self.end_ms(int(steps)) > at_ms)

    def _about(self, duration_ms: float) -> float:
        """Solve the sum for the number of steps, as well as floating point can."""
        if self.growth_ms <= 0:
            return duration_ms / self.first_ms
        linear = self.first_ms - self.growth_ms / 2
        return (sqrt(linear * linear + 2 * self.growth_ms * max(duration_ms, 0.0)) - linear) / self.growth_ms
