"""What goes into a simulated engine and what comes out of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autellix.engine.executor import Account, Turn
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

MAIN = ThreadId("main")


@dataclass(frozen=True, slots=True)
class SimulatedCall:
    """One call: how long it is, and what it shares with others."""

    call_id: CallId
    program_id: ProgramId
    facts: ProgramFacts
    prompt_tokens: int
    output_tokens: int
    """Tokens it generates, at least one."""
    keys: Sequence[int]
    """Names of the contents of its full blocks, prompt and output: equal keys mean equal tokens up to there."""
    thread_id: ThreadId = MAIN


class Ended(NamedTuple):
    """A call is over: it has all its tokens, or it was aborted."""

    call_id: CallId
    account: Account


class Happening(NamedTuple):
    """What happened in the engine, and when."""

    at_ms: float
    what: Turn | Ended


@dataclass(slots=True)
class Counters:
    """What an engine did since it was made."""

    steps: int = 0
    busy_ms: float = 0.0
    """Time in steps, swaps and the scheduler's time included."""
    prompt_tokens: int = 0
    """Of all calls that began."""
    cached_tokens: int = 0
    """Those of them that were found in the prefix cache when the call began."""
    prefill_tokens: int = 0
    """Tokens computed before a call's next one could be sampled, those computed again included."""
    output_tokens: int = 0
    """Of all calls that ended, aborted ones included."""
    preemptions: int = 0
    swaps: int = 0
    """Copies between device and host memory, both ways."""
    swapped_blocks: int = 0
    swap_ms: float = 0.0
    """Time of the copies, of those from the CPU tier, too."""
    scheduler_ms: float = 0.0
    loaded_tokens: int = 0
    """Copied from the CPU tier to the device, and not computed again."""
