"""The time of an engine step as a sum of what it computes, fitted to measured steps.

    step = a + b * prefill tokens + c * decoding calls + d * context tokens

No coefficient is below zero, and errors count relative to the step: a short step weighs as much as a long one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np


class Work(NamedTuple):
    """What a step computes: the terms of the fit, besides the constant."""

    prefill_tokens: float
    decoding_calls: float
    context_tokens: float


@dataclass(frozen=True)
class Point:
    """One batch, measured."""

    work: Work
    """The mean over its steps: contexts grow by a token a step."""
    steps_ms: Any
    """Its steps, a row a pass over the grid."""

    @property
    def ms(self) -> float:
        """The median step of the pass that was disturbed least."""
        return float(np.median(self.steps_ms, axis=1).min())


def terms(points: Sequence[Point]) -> Any:
    """Return a row of (1, prefill tokens, decoding calls, context tokens) a point."""
    return np.array([(1.0, *point.work) for point in points])


def fit(points: Sequence[Point]) -> Any:
    """Return (a, b, c, d), none negative, with the least sum of squared relative errors.

    The best coefficients that may not be negative are the plain least squares of some of the terms, with the others
    left out; there are sixteen such choices, and all are tried.
    """
    measured = np.array([point.ms for point in points])
    rows = terms(points) / measured[:, None]
    return min(_non_negative(rows), key=lambda coefficients: float(np.sum((rows @ coefficients - 1) ** 2)))


def _non_negative(rows: Any) -> Iterator[Any]:
    columns = range(rows.shape[1])
    for chosen in (list(some) for size in range(len(columns) + 1) for some in combinations(columns, size)):
        coefficients = np.zeros(len(columns))
        coefficients[chosen] = np.linalg.lstsq(rows[:, chosen], np.ones(len(rows)), rcond=None)[0]
        if np.all(coefficients >= 0):
            yield coefficients


def predicted(points: Sequence[Point], coefficients: Any) -> Any:
    """Return what the coefficients say of each point; milliseconds."""
    return terms(points) @ coefficients


def r_squared(points: Sequence[Point], coefficients: Any) -> float:
    """Return the share of the variance between the points that the coefficients explain."""
    measured = np.array([point.ms for point in points])
    left = np.sum((measured - predicted(points, coefficients)) ** 2)
    return float(1 - left / np.sum((measured - measured.mean()) ** 2))
