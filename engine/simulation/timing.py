"""How long a step takes, and all that is measured or assumed about one engine on one machine.

Every duration is kept on a grid of 2^-26 ms (15 ps). Sums of such numbers are exact in floating point for a day of
virtual time, so a stretch of steps taken at once ends at the same time as the same steps taken one by one.
"""

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

GRID = 2.0**26
"""Ticks per millisecond."""

Duration = Annotated[float, Meta(ge=0, le=1e6)]
Positive = Annotated[float, Meta(gt=0, le=1e6)]
Count = Annotated[int, Meta(ge=1, le=2**40)]


def on_grid(ms: float) -> float:
    """Return the nearest duration on the grid."""
    return round(ms * GRID) / GRID


def grid_after(ms: float) -> float:
    """Return the first time on the grid that is not before `ms`; never stays never."""
    return math.ceil(ms * GRID) / GRID if ms < math.inf else ms


class Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every table of a calibration is: frozen, and strict about its keys."""


class StepTiming(Checked, frozen=True, kw_only=True):
    """`[step]`: the time of a step is linear in what it computes; milliseconds."""

    fixed_ms: Positive
    prefill_token_ms: Duration
    decoding_call_ms: Duration
    context_token_ms: Duration
    """For every token that was computed in earlier steps, over all calls in this one."""

    def exact(self) -> "StepTiming":
        """Return the same timing on the grid."""
        return StepTiming(**{name: on_grid(ms) for name, ms in msgspec.structs.asdict(self).items()})

    def step_ms(self, *, prefill_tokens: int, decoding_calls: int, context_tokens: int) -> float:
        """Return how long one step takes."""
        return (
            self.fixed_ms
            + self.prefill_token_ms * prefill_tokens
            + self.decoding_call_ms * decoding_calls
            + self.context_token_ms * context_tokens
        )


class SwapTiming(Checked, frozen=True, kw_only=True):
    """`[swap.*]`: the time to move a call's blocks between device and host memory, one way; milliseconds."""

    block_ms: Duration
    copy_ms: Duration
    """Overhead of each copy."""
    blocks_per_copy: Count | None = None
    """None: all blocks of a call go in one copy."""

    def copies(self, blocks: int) -> int:
        """Return how many copies it takes to move `blocks`."""
        return -(-blocks // (self.blocks_per_copy or max(blocks, 1)))

    def move_ms(self, blocks: int) -> float:
        """Return how long it takes to move `blocks` of one call."""
        return on_grid(self.block_ms * blocks + self.copy_ms * self.copies(blocks))


class EngineLimits(Checked, frozen=True, kw_only=True):
    """`[engine]`: what fits into the engine."""

    slots: Count
    """Calls in a step (vLLM: `max_num_seqs`)."""
    kv_tokens: Count
    block_size: Count
    max_num_batched_tokens: Count
    """Tokens computed in a step."""
    max_model_len: Count
    host_kv_tokens: Annotated[int, Meta(ge=0)] = 0
    """Room in host memory for the tokens of calls that are swapped out."""

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < self.slots:
            raise ValueError("max_num_batched_tokens must be at least slots: every slot decodes a token a step")
        if self.kv_tokens < self.block_size:
            raise ValueError("kv_tokens must be at least one block")


class Calibration(Checked, frozen=True, kw_only=True):
    """One file of `calibrations/`."""

    name: str
    source: str
    """Where the numbers come from, in words; what is assumed is said to be."""
    step: StepTiming
    engine: EngineLimits
    swap: dict[str, SwapTiming] = {}
    """By the name of the way to copy."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one simulated engine works; `Calibration` has most of it."""

    limits: EngineLimits
    prefix_cache: bool = True
    chunked_prefill: bool = True
    """False: a step is either whole prefills or decodes, prefills first (the default of vLLM 0.6.1)."""
    preemption: Literal["recompute", "swap"] = "recompute"
    swap: SwapTiming | None = None
    """Needed with `preemption="swap"`, and with a CPU tier: blocks come back from there in the same way."""
    tier_tokens: Annotated[int, Meta(ge=0)] = 0
    """Room in CPU memory for copies of cached blocks (`tier.py`); 0: there is no such tier."""
    policy_interval_steps: Count = 1
    preemptions_per_step_max: Count = 4
    scheduler_ms: Duration = 0.0
    """Time that the scheduler adds to every step."""
    gate: str = "off"
    """A name in `policy.GATES`: how programs are held when their caches do not fit together."""
    jump: bool = True
    """Take stretches of decode-only steps at once; False: one by one, with the same results."""

    def __post_init__(self) -> None:
        if self.preemption == "swap" and self.swap is None:
            raise ValueError("preemption by swap needs a swap timing")
        if self.tier_tokens and self.swap is None:
            raise ValueError("a CPU tier needs a swap timing: how long it takes to copy blocks back")
        if self.tier_tokens and not self.prefix_cache:
            raise ValueError("a CPU tier needs the prefix cache: it keeps copies of what is cached")
