"""The KV blocks of one engine: what programs claim of them, and which may be evicted first.

Rules:
* A resident claims the blocks of its calls and of what each of its threads left last; any other program those of its
  calls in flight. A block counts once, whoever claims it.
* A block that nobody claims is exposed: evicted before all that somebody claims. Who becomes a resident before that
  keeps it.
* When a program is over, its blocks that no live program ever had or asked for are of no use to anybody and evicted at
  once, but for those of its first prompt: others may begin like it, with the same system prompt. They are orphaned:
  evicted before the exposed ones, which somebody will need. So is all that a program had which made one call: a client
  that names no program begins a new one with each turn of its conversation.
* Whoever loses a block loses those behind it in the chain, at the same time or before: no block is left behind whose
  beginning is gone.
"""

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Protocol

from autellix.engine.policy.claims import Block, Chain, Claims, shared_with
from autellix.engine.policy.program_cache import GatedCall, ProgramCache


class Cache(Protocol):
    """The engine's prefix cache."""

    def cached(self, chain: Chain) -> int:
        """Return how many blocks of a chain are cached, counted up to the first that is not."""
        ...

    def in_tier(self, chain: Chain, first: int) -> int:
        """Return how many blocks of a chain, from the `first` on, a tier holds, counted up to the first it lacks."""
        ...

    def expose(self, blocks: Collection[Block]) -> None:
        """Let blocks that no call holds be evicted before all others; of these, the last one first."""
        ...

    def orphan(self, blocks: Collection[Block]) -> None:
        """Let blocks that no call holds be evicted before the exposed ones; of these, the last one first."""
        ...

    def keep(self, blocks: Collection[Block]) -> None:
        """Let blocks that no call holds be neither exposed nor orphaned any more, as if they had been freed now."""
        ...

    def evict(self, blocks: Collection[Block]) -> None:
        """Evict blocks, unless a call holds them."""
        ...


class Room:
    """The blocks of an engine.

    Args:
        blocks: How many there are.
        cache: The engine's prefix cache.
    """

    def __init__(self, blocks: int, cache: Cache) -> None:
        self.blocks = blocks
        self._cache = cache
        self._claims = Claims()
        self._had = Claims()
        """By live programs, ever."""
        self._blank = 0

    @property
    def used(self) -> int:
        """Return how many blocks are claimed."""
        return len(self._claims) + self._blank

    def known(self, prompt: Chain) -> int:
        """Return how many of a prompt's first blocks some live program has had."""
        return self._had.of_chain(prompt)

    def lost(self, gated: GatedCall, *, has_tier: bool) -> tuple[int, int]:
        """Return how many blocks of a call's prompt would be computed again if it ran now, and how many copied.

        Args:
            gated: The call.
            has_tier: Whether the engine keeps copies in CPU memory.
        """
        cached = self._cache.cached(gated.prompt)
        copies = self._cache.in_tier(gated.prompt, cached) if has_tier else 0
        lost = max(0, gated.known - cached)
        return max(0, lost - copies), min(lost, copies)

    def needed_by_call(self, gated: GatedCall) -> int:
        """Return how many blocks a call needs that nobody claims."""
        return len(gated.prompt) - self._claims.of_chain(gated.prompt) + gated.blank

    def needed_by(self, program: ProgramCache) -> int:
        """Return how many blocks a program needs, as a resident, that nobody claims."""
        return self._claims.unclaimed(program.footprint) + program.blank - program.claimed_blank

    def note(self, program: ProgramCache, chain: Chain) -> None:
        """Note that a program has, or is going to have, these blocks."""
        if not program.had:
            program.first_blocks = len(chain)
        new = chain[shared_with(chain, program.had) :]
        program.had.update(dict.fromkeys(new))
        self._had.add(new)

    def claim(self, program: ProgramCache, chains: Iterable[Chain]) -> None:
        """Let a program claim chains, beside what it claims already."""
        for chain in chains:
            self._claims.add(program.claimed.add(chain))

    def release(self, program: ProgramCache, chains: Iterable[Chain]) -> None:
        """Let a program claim chains no more, each of them once; expose what nobody claims then."""
        for chain in chains:
            self._cache.expose(self._claims.drop(program.claimed.drop(chain)))

    def claim_call(self, program: ProgramCache, gated: GatedCall) -> None:
        """Let a program claim what a call of it needs."""
        self.claim(program, [gated.prompt])
        self._add_blank(program, gated.blank)

    def release_call(self, program: ProgramCache, gated: GatedCall) -> None:
        """Let a program claim no more what a call of it needs."""
        self.release(program, [gated.prompt])
        self._add_blank(program, -gated.blank)

    def keep(self, program: ProgramCache) -> None:
        """Let what a new resident claims be exposed no more: all of it, lest a block outlast its beginning."""
        self._cache.keep([*program.claimed])

    def expose(self, chains: Iterable[Chain]) -> None:
        """Expose those blocks of some chains that nobody claims."""
        for chain in chains:
            self._cache.expose(chain[self._claims.of_chain(chain) :])

    def forget(self, program: ProgramCache) -> None:
        """Give up what a program had that is over and claims nothing any more."""
        first = set(islice(program.had, program.first_blocks if program.calls_ended > 1 else None))
        useless = self._had.drop(program.had)
        self._cache.orphan([block for block in useless if block in first])
        self._cache.evict([block for block in useless if block not in first])

    def _add_blank(self, program: ProgramCache, blocks: int) -> None:
        program.claimed_blank += blocks
        self._blank += blocks
