"""A call inside the simulated engine, and calls in order of rank."""

from bisect import bisect_left
from dataclasses import dataclass, field

from autellix.engine.policy.call import QueuedCall, Rank
from autellix.engine.simulation.blocks import Holding
from autellix.engine.simulation.calls import SimulatedCall


@dataclass(eq=False, slots=True)
class LiveCall:
    """One call, waiting or running, and how far it is."""

    call: SimulatedCall
    queued: QueuedCall
    stands_at: Rank
    """Its rank when it was put where it stands; it is found by it."""
    computed: int = 0
    """Tokens whose KV cache it has; of a decoding call, as of the round it joined in."""
    generated: int = 0
    """Tokens it has sampled; of a decoding call, as of the round it joined in."""
    holding: Holding = field(default_factory=Holding)
    swapped_blocks: int = 0
    """Blocks it has in host memory, while it is swapped out."""
    cached_tokens: int | None = None
    """What it found in the prefix cache when it began; None before."""
    joined_round: int = 0
    decode_number: int | None = None
    """The one entry among the ends of decodes that holds; None while it does not decode."""

    @property
    def is_running(self) -> bool:
        """Whether it is in the batch."""
        return self.queued.waiting_since_ms is None

    @property
    def can_decode(self) -> bool:
        """Whether it waits, swapped out, with only its last token to compute."""
        return self.swapped_blocks > 0 and self.computed == self.tokens - 1

    @property
    def tokens(self) -> int:
        """Its prompt and what it has generated: what must be computed to sample the next token."""
        return self.call.prompt_tokens + self.generated


class Ranked:
    """Calls in order of rank, the best first; to add or remove one takes O(log n) and a move of pointers."""

    def __init__(self) -> None:
        self.calls: list[LiveCall] = []
        self._ranks: list[Rank] = []

    def __len__(self) -> int:
        return len(self.calls)

    def add(self, live: LiveCall) -> None:
        """Put a call at the rank it has now."""
        live.stands_at = live.queued.rank
        place = bisect_left(self._ranks, live.stands_at)
        self._ranks.insert(place, live.stands_at)
        self.calls.insert(place, live)

    def remove(self, live: LiveCall) -> None:
        """Take out a call that is in."""
        place = bisect_left(self._ranks, live.stands_at)
        del self._ranks[place], self.calls[place]

    def rerank(self, live: LiveCall) -> None:
        """Move a call that is in to the rank it has now."""
        self.remove(live)
        self.add(live)
