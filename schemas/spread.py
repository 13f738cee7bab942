"""A distribution of one number over programs, as the simulator and the benchmark tell it.

A percentile is by nearest rank: the least value that at least so many per cent of the values do not exceed.
"""

from collections.abc import Iterable, Sequence
from math import ceil, fsum

import msgspec


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution over programs."""

    mean: float
    p50: float
    p95: float
    p99: float


def spread(values: Iterable[float]) -> Spread | None:
    """Return the mean and the percentiles of some values, None without any."""
    ordered = sorted(values)
    if not ordered:
        return None
    p50, p95, p99 = (percentile(ordered, percent) for percent in (50, 95, 99))
    return Spread(mean=fsum(ordered) / len(ordered), p50=p50, p95=p95, p99=p99)


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the least of some ascending values that at least `percent` of them do not exceed."""
    return ordered[max(1, ceil(percent * len(ordered) / 100)) - 1]
