"""Which blocks of the KV cache programs lay claim to, each counted once however many need it.

A program's blocks are chains: the name of a block stands for its tokens and all before them. So whoever has a block has
the ones before it, and of any chain it is a first part that others have, which bisection finds. A long context costs
next to nothing to claim again: only what is new of it is looked at, or what nobody else has.
"""

from bisect import bisect_left
from collections.abc import Container, Hashable, Iterable, Iterator, KeysView, Sequence

Block = Hashable
"""The name of a full block: equal names mean equal tokens, up to and including the block."""
Chain = Sequence[Block]
"""The blocks of one context, in order."""


def shared_with(chain: Chain, blocks: Container[Block]) -> int:
    """Return how many blocks of a chain are among others, of whole chains, too: its first ones."""
    return bisect_left(chain, True, key=lambda block: block not in blocks)  # noqa: FBT003 - not a flag


class Chains:
    """Chains of one program, any of them several times, and their blocks, each once."""

    def __init__(self) -> None:
        self._uses: dict[Block, int] = {}
        """How many chains end in a block, and how many other blocks follow it directly in a chain."""

    def __len__(self) -> int:
        """Return how many blocks there are."""
        return len(self._uses)

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks, each after those before it in its chains."""
        return iter(self._uses)

    @property
    def blocks(self) -> KeysView[Block]:
        """Return the blocks, as a set."""
        return self._uses.keys()

    def add(self, chain: Chain) -> Chain:
        """Add a chain; return its blocks that no other has."""
        known = shared_with(chain, self._uses)
        if known:
            self._uses[chain[known - 1]] += 1
        new = chain[known:]
        self._uses.update(dict.fromkeys(new, 1))
        return new

    def drop(self, chain: Chain) -> Chain:
        """Take a chain away, once; return its blocks that no other has.

        Raises:
            KeyError: when it is not there.
        """
        kept = len(chain)
        while kept and self._uses[chain[kept - 1]] == 1:
            kept -= 1
            del self._uses[chain[kept]]
        if kept:
            self._uses[chain[kept - 1]] -= 1
        return chain[kept:]


class Claims:
    """How many programs claim each block."""

    def __init__(self) -> None:
        self._claims: dict[Block, int] = {}

    def __len__(self) -> int:
        """Return how many blocks are claimed."""
        return len(self._claims)

    def __contains__(self, block: Block) -> bool:
        """Tell whether anybody claims a block."""
        return block in self._claims

    def of_chain(self, chain: Chain) -> int:
        """Return how many blocks of a chain are claimed: its first ones."""
        return shared_with(chain, self._claims)

    def unclaimed(self, chains: Chains) -> int:
        """Return how many blocks of some chains nobody claims."""
        return len(chains) - len(chains.blocks & self._claims.keys())  # as fast as the smaller of the two is small

    def add(self, blocks: Iterable[Block]) -> None:
        """Let one more program claim these blocks."""
        for block in blocks:
            self._claims[block] = self._claims.get(block, 0) + 1

    def drop(self, blocks: Iterable[Block]) -> list[Block]:
        """Let one program less claim these blocks; return those that nobody claims any more, in the same order."""
        released = []
        for block in blocks:
            self._claims[block] -= 1
            if not self._claims[block]:
                del self._claims[block]
                released.append(block)
        return released
