"""How much is simulated for a figure."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Effort:
    """How long the runs of a figure are, and how many."""

    seeds: tuple[int, ...]
    arrivals_s: float
    """Programs arrive for so long, in the figures where they arrive over time."""
    offline_programs: tuple[int, ...]
    """Where all arrive at once."""
    engines: tuple[int, ...]
    """Of the figure that counts engines."""
    every: int = 1
    """Of each row of arrival rates, only each so-manyth is taken."""

    def thin(self, rates: tuple[float, ...]) -> tuple[float, ...]:
        """Return those of `rates` that are simulated."""
        return rates[:: self.every]

    def shortened(self, times: int) -> "Effort":
        """Return the same with less time of arrivals."""
        return replace(self, arrivals_s=self.arrivals_s / times)

    @property
    def length(self) -> str:
        """Return how long programs arrive, in words."""
        return f"programs arrive for {self.arrivals_s / 60:.3g} min"


FULL = Effort(seeds=(1, 2), arrivals_s=600, offline_programs=(1000, 2000, 4000), engines=(1, 2, 4, 8))
QUICK = Effort(seeds=(1,), arrivals_s=60, offline_programs=(50, 100), engines=(1, 2), every=2)
