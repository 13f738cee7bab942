"""How fast a system is that has nothing else to do: what the waiting and the slowdown of a load are measured against.

Before a load a few programs are run call by call, one call at a time. From these calls come four numbers:

* Time to the first token is a straight line over the tokens of the prompt that are computed (not found in the cache):
  the Theil-Sen line, whose slope is the median of the slopes between any two calls, and whose height is the median
  that is left. A call that met a hiccup of the machine does not bend it.
* Time per further token is the median over the calls.
* Of the tokens that a cache could know, the share that this system did find. Where it does not tell, none: the line is
  then one over whole prompts, and what the cache saves is in its slope.

A program's completion on the idle system is the longest chain of its calls, at these speeds, and its interrupts. Each
call is taken to have the system to itself: for programs with parallel branches that is a lower bound.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

import msgspec

from autellix.client.bench.texts import known_tokens
from autellix.schemas.traces.records import TraceCall, TraceProgram


class Sample(NamedTuple):
    """One call on the idle system; seconds and tokens."""

    prompt_tokens: int
    known_tokens: int
    """Of the prompt; a cache could have them."""
    cached_tokens: float | None
    """None: the system does not tell."""
    output_tokens: int
    first_token_s: float
    total_s: float


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of an idle system; seconds."""

    first_token_s: float
    """Until the first token, were the whole prompt in the cache."""
    computed_token_s: float
    """More for each token of the prompt that is computed."""
    output_token_s: float
    """For each token of the answer but the first."""
    cached_share: float = 0.0
    """Of the tokens that a cache could know."""

    def wait_s(self, call: TraceCall) -> float:
        """Return the time to a call's first token."""
        computed = call.prompt_tokens - self.cached_share * known_tokens(call)
        return self.first_token_s + self.computed_token_s * computed

    def completion_s(self, program: TraceProgram, interrupt_cap_s: float) -> float:
        """Return the time from a program's arrival to its end, interrupts included."""
        ends_s: dict[int, float] = {}
        for call in program.calls:
            free_s = max((ends_s[parent] for parent in call.parents), default=0.0)
            answer_s = self.output_token_s * (call.output_tokens - 1)
            ends_s[call.id] = free_s + interrupt_s(call, interrupt_cap_s) + self.wait_s(call) + answer_s
        return max(ends_s.values())


def interrupt_s(call: TraceCall, cap_s: float) -> float:
    """Return the interrupt before a call, none if it is not known."""
    return min(call.interrupt_s or 0.0, cap_s)


def fit(samples: Sequence[Sample]) -> Idle | None:
    """Return the speed that some calls show, None without any."""
    if not samples:
        return None
    told = [each for each in samples if each.cached_tokens is not None]
    points = [(each.prompt_tokens - (each.cached_tokens or 0.0), each.first_token_s) for each in samples]
    height, slope = _line(points)
    paces = [
        (each.total_s - each.first_token_s) / (each.output_tokens - 1) for each in samples if each.output_tokens > 1
    ]
    known = sum(each.known_tokens for each in told)
    cached = sum(each.cached_tokens or 0.0 for each in told)
    return Idle(
        first_token_s=height,
        computed_token_s=slope,
        output_token_s=median(paces) if paces else 0.0,
        cached_share=min(1.0, cached / known) if known else 0.0,
    )


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return height at 0 and slope of the Theil-Sen line, neither below 0."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2]
    slope = max(0.0, median(slopes)) if slopes else 0.0
    return max(0.0, median(y - slope * x for x, y in points)), slope
