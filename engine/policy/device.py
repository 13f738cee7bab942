"""What runs at once in an engine whose programs keep their caches in a tier behind the device.

With a CPU tier more programs are resident than fit on the device. What runs must be there all the same.

Rules:
* A call that passed needs the blocks of its prompt and of the expected answer on the device, each block once, until it
  has ended. All of them together take 0.90 of the device at most; a call passes in any case when nothing runs.
* Residents' calls that find no room wait in the order of all held calls, and nobody goes before the first of them.
* Without a tier that is larger than the device this says nothing: what residents claim fits on the device.
"""

from autellix.engine.policy.claims import Claims
from autellix.engine.policy.program_cache import GatedCall

RUN_UP_TO = 0.90


class Device:
    """The blocks of the device, and what runs in them.

    Args:
        blocks: How many there are.
        tier_blocks: How many the tier has room for; copies of what is on the device are among them.
    """

    def __init__(self, blocks: int, tier_blocks: int) -> None:
        self.blocks = blocks
        self.is_short = tier_blocks > blocks
        """Whether residents may have more than fits."""
        self._claims = Claims()
        self._blank = 0
        self._calls = 0

    @property
    def used(self) -> int:
        """Return how many blocks the calls that run need; not counted when the device is never short."""
        return len(self._claims) + self._blank

    @property
    def free(self) -> float:
        """Return how many blocks are left for further calls."""
        return RUN_UP_TO * self.blocks - self.used

    def needed(self, gated: GatedCall) -> int:
        """Return how many blocks a call needs that no call that runs has."""
        return len(gated.prompt) - self._claims.of_chain(gated.prompt) + gated.blank

    def fits(self, gated: GatedCall) -> bool:
        """Tell whether a call may run beside those that do."""
        return not (self.is_short and self._calls) or self.needed(gated) <= self.free

    def began(self, gated: GatedCall) -> None:
        """Note that a call passed."""
        if self.is_short:
            self._claims.add(gated.prompt)
            self._blank += gated.blank
            self._calls += 1

    def ended(self, gated: GatedCall) -> None:
        """Note that a call that passed is over."""
        if self.is_short:
            self._claims.drop(gated.prompt)
            self._blank -= gated.blank
            self._calls -= 1
