"""The simulated KV memory against vLLM's own KV cache manager: the same hits, the same room, the same refusals."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from autellix.engine.simulation.calls import Counters, SimulatedCall
from autellix.engine.simulation.live import LiveCall
from autellix.engine.simulation.memory import KvMemory
from autellix.engine.simulation.timing import EngineLimits, EngineOptions
from tests.unit.kv_manager import BLOCK_SIZE, vllm_manager, vllm_request

pytestmark = pytest.mark.vllm

BLOCKS = 40
LONGEST = 60


@dataclass
class Pair:
    """One call, in vLLM and in the simulation."""

    request: Any
    live: Any


class Both:
    """Drives both memories through the same random calls."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.manager = vllm_manager(BLOCKS, LONGEST)
        limits = EngineLimits(
            slots=1,
            kv_tokens=BLOCKS * BLOCK_SIZE,
            block_size=BLOCK_SIZE,
            max_num_batched_tokens=1,
            max_model_len=LONGEST,
        )
        self.memory = KvMemory(EngineOptions(limits=limits), Counters())
        self.names: dict[tuple[int, ...], int] = {}
        self.running: list[Pair] = []
        self.calls = 0
        self.hits = 0
        self.refusals = 0

    def act(self) -> None:
        """Let a call begin, go on or leave; then both have as many blocks free."""
        action = self.rng.choice((self.begin, self.begin, self.go_on, self.go_on, self.go_on, self.leave))
        if action == self.begin or self.running:
            action()

        assert self.manager.block_pool.get_num_free_blocks() == self.memory.free_blocks

    def tokens(self) -> list[int]:
        """Make up a content that shares a part with others."""
        stem, shared, new = self.rng.randrange(3), self.rng.randrange(LONGEST), self.rng.randrange(4)
        length = self.rng.randrange(2, LONGEST)
        return [stem if place < shared else 10 + new for place in range(length)]

    def begin(self) -> None:
        """Let a call in, as far as its first chunk, if the whole of it fits."""
        pair = self.pair(self.tokens())
        blocks, cached_tokens, _ = self.manager.get_computed_blocks(pair.request)
        chunk = self.rng.randint(1, len(pair.request.all_token_ids) - cached_tokens)
        given = self.manager.allocate_slots(pair.request, chunk, cached_tokens, blocks, full_sequence_must_fit=True)
        free = self.memory.free_blocks
        assert cached_tokens == self.memory.at_hand(pair.live)
        assert (given is not None) == (self.memory.needed(pair.live, free) <= free)
        if given is None:
            self.refusals += 1
            return
        self.memory.let_in(pair.live)
        assert cached_tokens == pair.live.computed
        pair.request.num_computed_tokens = cached_tokens
        self.hits += cached_tokens > 0
        self.running.append(pair)
        self.compute(pair, chunk)

    def go_on(self) -> None:
        """Let a running call compute more of its prompt, if there are blocks for that."""
        pair = self.rng.choice(self.running)
        left = pair.request.num_tokens - pair.request.num_computed_tokens
        if left == 0:
            return
        tokens = self.rng.randint(1, left)
        missing = self.memory.missing(pair.live, pair.live.computed + tokens)
        given = self.manager.allocate_slots(pair.request, tokens)
        assert (given is not None) == (missing <= self.memory.free_blocks)
        if given is not None:
            self.compute(pair, tokens)

    def compute(self, pair: Pair, tokens: int) -> None:
        """Count tokens as computed; vLLM has given the blocks for them already."""
        pair.request.num_computed_tokens += tokens
        self.memory.extend(pair.live, pair.live.computed + tokens)
        pair.live.computed += tokens
        self.memory.fill(pair.live, pair.live.computed)

    def leave(self) -> None:
        """Let a running call free its blocks."""
        pair = self.running.pop(self.rng.randrange(len(self.running)))
        self.manager.free(pair.request)
        self.memory.release(pair.live)

    def pair(self, tokens: list[int]) -> Pair:
        """Return a call with these prompt tokens."""
        self.calls += 1
        ends = range(BLOCK_SIZE, len(tokens) + 1, BLOCK_SIZE)
        keys = [self.names.setdefault(tuple(tokens[:end]), len(self.names)) for end in ends]
        call = SimulatedCall(f"c{self.calls}", "p", None, len(tokens), 1, keys)  # type: ignore[arg-type]
        return Pair(vllm_request(call.call_id, tokens), LiveCall(call, None, (0, 0.0, 0)))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_memory_is_that_of_vllm(seed: int) -> None:
    """Over random calls that share prefixes, both find the same prefixes cached and have room for the same calls."""
    both = Both(random.Random(seed))
    for _ in range(500):
        both.act()

    assert both.hits > 30
    assert both.refusals > 10
