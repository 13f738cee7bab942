"""What one program has in the KV cache of an engine, and what it wants there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from autellix.engine.policy.call import Level, QueuedCall
from autellix.engine.policy.claims import Block, Chain, Chains
from autellix.schemas.ids import CallId, ProgramId, ThreadId

THREADS_KEPT = 64
"""Threads of one program whose contexts are remembered; those that ended a call longest ago go first."""


@dataclass(eq=False, slots=True)
class GatedCall:
    """One call of a program, held or passed."""

    call: QueuedCall
    thread_id: ThreadId
    prompt: Chain
    """The full blocks of its prompt."""
    blank: int
    """Blocks that it will need beside them: not full, or of its answer."""
    known: int
    """Of the prompt, the first blocks, that some live program had, or asked for, before the call arrived."""
    arrived_at_ms: float
    standing: Any = None
    """Its place among the held calls; None: it passed."""
    held_ms: float = 0.0
    is_forced: bool = False
    """Whether it was held for so long that it goes before all others (`plain_gate.py`)."""

    @property
    def blocks(self) -> int:
        """Return how many blocks it needs, whoever has them already."""
        return len(self.prompt) + self.blank


@dataclass(eq=False, slots=True)
class Context:
    """What the last call of a thread left."""

    chains: Sequence[Chain]
    """One for each of its answers."""
    ended_at_ms: float


@dataclass(eq=False, slots=True)
class ProgramCache:
    """One live program."""

    program_id: ProgramId
    calls: dict[CallId, GatedCall] = field(default_factory=dict)
    contexts: dict[ThreadId, Context] = field(default_factory=dict)
    """By thread, the latest last."""
    had: dict[Block, None] = field(default_factory=dict)
    """All blocks it ever had or asked for."""
    first_blocks: int = 0
    """So many of these, the first, were in its first prompt."""
    wanted: int = 0
    """Blocks that it needed and nobody claimed when its latest call came that did not pass at once."""
    footprint: Chains = field(default_factory=Chains)
    """Of all its calls and contexts."""
    blank: int = 0
    """Of all its calls."""
    claimed: Chains = field(default_factory=Chains)
    claimed_blank: int = 0
    in_flight: int = 0
    """Calls that passed and have not ended."""
    calls_ended: int = 0
    is_resident: bool = False
    is_leaving: bool = False
    """A resident whose new calls are held; it leaves when those that passed have ended."""
    is_over: bool = False
    resident_since_ms: float = 0.0
    turns: int = 0
    """How often it became a resident."""
    idle_since_ms: float = 0.0
    """When its last call ended; means nothing while it has calls."""
    level: Level = (0, 0.0)
    """Of the call that arrived or ended last."""

    @property
    def held(self) -> list[GatedCall]:
        """Return the calls that are held."""
        return [gated for gated in self.calls.values() if gated.standing is not None]

    @property
    def stays(self) -> bool:
        """Tell whether it is a resident and is not to leave."""
        return self.is_resident and not self.is_leaving

    @property
    def claims(self) -> int:
        """Return how many blocks it claims; others may claim them, too."""
        return len(self.claimed) + self.claimed_blank

    @property
    def left(self) -> list[Chain]:
        """Return what its threads left, and no later call of theirs has replaced."""
        return [*chain.from_iterable(context.chains for context in self.contexts.values())]

    def came(self, gated: GatedCall) -> None:
        """Note that a call has come."""
        self.calls[gated.call.call_id] = gated
        self.footprint.add(gated.prompt)
        self.blank += gated.blank

    def went(self, gated: GatedCall) -> None:
        """Note that a call is over; what it leaves is noted already."""
        self.footprint.drop(gated.prompt)
        self.blank -= gated.blank

    def leave_context(self, thread_id: ThreadId, chains: Sequence[Chain], now_ms: float) -> list[Chain]:
        """Note what an ended call of a thread left; return what is forgotten for it."""
        for each in chains:
            self.footprint.add(each)
        forgotten = self._forget_context(thread_id) if thread_id in self.contexts else []
        self.contexts[thread_id] = Context(chains, now_ms)
        if len(self.contexts) > THREADS_KEPT:
            forgotten += self._forget_context(next(iter(self.contexts)))
        return forgotten

    def forget_contexts(self, before_ms: float) -> list[Chain]:
        """Forget what threads left that ended their last call before a time; return it."""
        forgotten: list[Chain] = []
        while self.contexts and next(iter(self.contexts.values())).ended_at_ms < before_ms:
            forgotten += self._forget_context(next(iter(self.contexts)))
        return forgotten

    def _forget_context(self, thread_id: ThreadId) -> list[Chain]:
        forgotten = self.contexts.pop(thread_id).chains
        for each in forgotten:
            self.footprint.drop(each)
        return [*forgotten]
