"""A second tier of KV blocks in CPU memory, as vLLM's `OffloadingConnector` keeps it.

Rules, all vLLM's:
* Each full block is copied to the tier when it has been computed: what is on the device is in the tier, too, until it
  is the longest unused there. So device and tier together hold what the larger of the two holds, not the sum.
* A call looks for its blocks on the device first, then, from the first that is missing there, in the tier.
* The blocks that were used the longest ago are evicted first, of one call the last of its blocks. A use is the end of a
  call that had the block. The gate has no say in it.
Not vLLM's: the step in which a call begins waits for its copy. In vLLM other calls go on meanwhile; copies to the tier
take no time here, and there next to none of the engine's.
"""

from collections import OrderedDict
from collections.abc import Sequence


class Tier:
    """The tier of one engine.

    Args:
        blocks: How many it has room for.
    """

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._contents: OrderedDict[int, None] = OrderedDict()
        """What it holds, the longest unused first."""

    def __len__(self) -> int:
        return len(self._contents)

    def found(self, keys: Sequence[int], first: int, most: int) -> int:
        """Return how many blocks it holds from the `first` key on, up to the first that it lacks, before `most`."""
        place = first
        while place < most and keys[place] in self._contents:
            place += 1
        return max(0, place - first)

    def store(self, keys: Sequence[int]) -> None:
        """Keep copies of blocks that were computed."""
        for key in keys:
            if key not in self._contents and self._blocks:
                if len(self._contents) == self._blocks:
                    self._contents.popitem(last=False)
                self._contents[key] = None

    def used(self, keys: Sequence[int]) -> None:
        """Note that a call is over which had these blocks."""
        for key in reversed(keys):
            if key in self._contents:
                self._contents.move_to_end(key)
