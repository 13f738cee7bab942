"""Numbers over seeds, and where a curve of latency over arrival rate reaches a level."""

from collections.abc import Sequence
from math import fsum, inf, isfinite, log
from typing import NamedTuple

from autellix.services.simulator.figures.drawing import Line


class Seeds(NamedTuple):
    """One number of each seed; infinity for a run that did not finish."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return their mean."""
        return fsum(self.values) / len(self.values)

    def text(self, digits: int = 3) -> str:
        """Return the mean and, of several, half the distance of the least and the greatest."""
        if not isfinite(self.mean):
            return "unfinished"
        mean = f"{self.mean:.{digits}g}"
        return f"{mean} ±{(max(self.values) - min(self.values)) / 2:.2g}" if len(self.values) > 1 else mean


class Bound(NamedTuple):
    """A number that is known, or that is known to be more or less than a value."""

    value: float
    sign: str = ""
    """`>`, `<`, or nothing."""


def line(label: str, x: Sequence[float], y: Sequence[Seeds]) -> Line:
    """Return a line through the means, with the least and the greatest of each."""
    return Line(
        label=label,
        x=list(x),
        y=[_finite(seeds.mean) for seeds in y],
        low=[_finite(min(seeds.values)) for seeds in y],
        high=[_finite(max(seeds.values)) for seeds in y],
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def crossing(rates: Sequence[float], latencies: Sequence[float], level: float) -> Bound:
    """Return the lowest arrival rate at which a curve reaches `level`.

    Between two rates the logarithm of the latency is taken to be linear; a run that did not finish is taken to have
    reached any level at the rate before.
    """
    if latencies[0] >= level:
        return Bound(rates[0], "<")
    for left in range(len(rates) - 1):
        low, high = latencies[left], latencies[left + 1]
        if low < level <= high:
            share = log(level / low) / log(high / low) if high < inf else 0.0
            return Bound(rates[left] + share * (rates[left + 1] - rates[left]))
    return Bound(rates[-1], ">")


def ratio(over: Bound, under: Bound) -> Bound | None:
    """Return the ratio of two bounds, None where nothing is known of it."""
    turned = {">": "<", "<": ">", "": ""}[under.sign]
    signs = {over.sign, turned} - {""}
    if len(signs) > 1:
        return None
    return Bound(over.value / under.value, "".join(signs))


def bounds_text(bounds: Sequence[Bound | None], digits: int = 3) -> str:
    """Return bounds, one of each seed, as one text; a dash where one of them is not known at all."""
    known = [bound for bound in bounds if bound is not None]
    signs = {bound.sign for bound in known} - {""}
    if len(known) < len(bounds) or len(signs) > 1:
        return "-"
    return "".join(signs) + Seeds(tuple(bound.value for bound in known)).text(digits)


def interpolated(xs: Sequence[float], ys: Sequence[float], x: float) -> float | None:
    """Return the value of a curve at `x`, None outside of it."""
    for left in range(len(xs) - 1):
        if xs[left] <= x <= xs[left + 1]:
            share = (x - xs[left]) / (xs[left + 1] - xs[left])
            return ys[left] + share * (ys[left + 1] - ys[left])
    return None
