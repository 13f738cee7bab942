"""Which blocks of the KV cache programs lay claim to, each counted once however many need it.

A program's blocks are chains: the name of a block stands for its tokens and all before them. So whoever has a block has
the ones before it, and of any chain it is a first part that others have, which bisection finds.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence

Block = Hashable
"""The name of a full block: equal names mean equal tokens, up to and including the block."""
Chain = Sequence[Block]
"""The blocks of one context, in order."""
Blocks = Mapping[Block, None]
"""Different blocks, each after those before it in its chains."""


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
        return bisect_left(range(len(chain)), True, key=lambda place: chain[place] not in self._claims)  # noqa: FBT003 - not a flag

    def unclaimed(self, blocks: Blocks) -> int:
        """Return how many of these blocks nobody claims."""
        return len(blocks) - len(blocks.keys() & self._claims.keys())  # as fast as the smaller of the two is small

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

    def change(self, before: Blocks, after: Blocks) -> list[Block]:
        """Replace a program's claims by others; return the blocks that nobody claims any more, in order."""
        self.add(after.keys() - before.keys())
        gone = before.keys() - after.keys()
        return self.drop(block for block in before if block in gone) if gone else []
