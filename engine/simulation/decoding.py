"""The calls that decode: each of their rounds brings every one of them a token, so they are advanced together.

What a call has computed is read off the number of rounds since it joined. In which rounds it needs another block is
known when it joins, so calls are kept by that: a round touches only those whose turn it is.
"""

import heapq

from autellix.engine.simulation.live import LiveCall


class Decodes:
    """All decoding calls of an engine.

    Args:
        block_size: Tokens in a block.
    """

    def __init__(self, block_size: int) -> None:
        self.round = 0
        self.context_tokens = 0
        """What they have computed, together."""
        self.count = 0
        self._block_size = block_size
        self._due: list[dict[LiveCall, None]] = [{} for _ in range(block_size)]
        """Who needs a block in a round, by the round modulo the block size."""
        self._ends: list[tuple[int, int, LiveCall]] = []
        self._numbers = 0

    def __contains__(self, live: LiveCall) -> bool:
        return live.decode_number is not None

    def add(self, live: LiveCall) -> None:
        """Let a call that has a token to go on from decode, from this round on."""
        self._numbers += 1
        live.decode_number = self._numbers
        live.joined_round = self.round
        self.count += 1
        self.context_tokens += live.computed
        self._due[(self.round - live.computed) % self._block_size][live] = None
        left = live.call.output_tokens - live.generated
        heapq.heappush(self._ends, (self.round + left, self._numbers, live))

    def remove(self, live: LiveCall) -> None:
        """Take a call out, with what it computed and generated up to this round."""
        del self._due[(live.joined_round - live.computed) % self._block_size][live]
        rounds = self.round - live.joined_round
        live.computed += rounds
        live.generated += rounds
        live.decode_number = None
        self.count -= 1
        self.context_tokens -= live.computed

    def computed(self, live: LiveCall) -> int:
        """Return the tokens that a decoding call has computed up to this round."""
        return live.computed + self.round - live.joined_round

    def advance(self, rounds: int) -> None:
        """Let rounds pass."""
        self.round += rounds
        self.context_tokens += self.count * rounds

    def due(self) -> dict[LiveCall, None]:
        """Return who needs another block in this round."""
        return self._due[self.round % self._block_size]

    def blocks_due(self, rounds: int) -> int:
        """Return how many blocks the next `rounds` rounds need; this one's have been taken."""
        cycles, rest = divmod(rounds, self._block_size)
        later = range(self.round + 1, self.round + 1 + rest)
        return self.count * cycles + sum(len(self._due[number % self._block_size]) for number in later)

    def rounds_to_end(self) -> int:
        """Return how many rounds it takes until some call has all its tokens; there must be a call."""
        self._drop_void()
        return self._ends[0][0] - self.round

    def rounds_within(self, free_blocks: int, most: int) -> int:
        """Return how many rounds, this one and at most `most` with it, need no more blocks than are free.

        This round's blocks have been taken already.
        """
        rounds = 1
        if self.count * -(-most // self._block_size) <= free_blocks:
            return most
        while rounds < most:
            free_blocks -= len(self._due[(self.round + rounds) % self._block_size])
            if free_blocks < 0:
                break
            rounds += 1
        return rounds

    def take_ended(self) -> list[LiveCall]:
        """Take out and return the calls that have all their tokens."""
        ended = []
        while self._ends and self._drop_void() and self._ends[0][0] <= self.round:
            live = self._ends[0][2]
            self.remove(live)
            ended.append(live)
        return ended

    def _drop_void(self) -> bool:
        """Forget the ends of calls that left before; tell whether any end is left."""
        while self._ends and self._ends[0][2].decode_number != self._ends[0][1]:
            heapq.heappop(self._ends)
        return bool(self._ends)
