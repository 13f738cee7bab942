"""How much better one system is than another, from curves of latency against rate. Pure.

A curve that never comes to a latency within the measured range says only that it is reached beyond its end, or before
its beginning. Such an estimate is a bound, is marked as one, and stays one in every ratio that it is part of.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log
from typing import Literal, NamedTuple

Sign = Literal["=", ">", "<", "?"]
"""The true value is about this one, above it, below it, or cannot be told."""

_FLIPPED: dict[Sign, Sign] = {"=": "=", ">": "<", "<": ">", "?": "?"}


class Point(NamedTuple):
    """A measured load."""

    rate_per_s: float
    latency_ms: float


class Estimate(NamedTuple):
    """A value, or a bound of it."""

    value: float
    sign: Sign = "="


class Ratio(NamedTuple):
    """A ratio over several seeds."""

    mean: float
    spread: float
    """Half of the distance between the least and the greatest."""
    sign: Sign = "="

    def __str__(self) -> str:
        """Return it as tables have it."""
        if self.sign == "?":
            return "beyond range"
        bound = "" if self.sign == "=" else f"{self.sign} "
        return f"{bound}{spread_text(self.mean, self.spread)}"


def highest_rate(points: Sequence[Point], latency_ms: float) -> Estimate:
    """Return up to which rate the latency stays at or below a bound.

    Between two points the logarithm of the latency is taken to be a straight line. Where a curve crosses the bound
    several times the first counts: beyond it the system no longer holds what was asked.

    Args:
        points: One at least, in any order; latencies above 0.
        latency_ms: The bound.
    """
    ordered = sorted(points)
    if ordered[0].latency_ms > latency_ms:
        return Estimate(ordered[0].rate_per_s, "<")
    for below, above in pairwise(ordered):
        if above.latency_ms > latency_ms:
            part = log(latency_ms / below.latency_ms) / log(above.latency_ms / below.latency_ms)
            return Estimate(below.rate_per_s + part * (above.rate_per_s - below.rate_per_s))
    return Estimate(ordered[-1].rate_per_s, ">")


def quotient(over: Estimate, under: Estimate) -> Estimate:
    """Return one estimate divided by another."""
    return Estimate(over.value / under.value, _both([over.sign, _FLIPPED[under.sign]]))


def over_seeds(estimates: Sequence[Estimate]) -> Ratio | None:
    """Return what several seeds say together, None for none."""
    if not estimates:
        return None
    mean, spread = mean_and_spread([estimate.value for estimate in estimates])
    return Ratio(mean, spread, _both(estimate.sign for estimate in estimates))


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half of the distance between the least and the greatest."""
    return sum(values) / len(values), (max(values) - min(values)) / 2


def spread_text(mean: float, spread: float) -> str:
    """Return a mean and its spread as tables have them."""
    return f"{mean:.3g} ±{spread:.2g}" if spread else f"{mean:.3g}"


def _both(signs: Iterable[Sign]) -> Sign:
    """Return the sign of what several estimates make, each of which pulls in the direction of its own."""
    distinct: set[Sign] = set(signs) - {"="}
    if not distinct:
        return "="
    return distinct.pop() if len(distinct) == 1 else "?"
