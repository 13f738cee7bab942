"""vLLM's block pool with orphaned and exposed blocks in it: its own rules still hold, and they go first."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from autellix.engine.policy.call import QueuedCall
from autellix.engine.policy.gate import Gate
from autellix.engine.policy.program_cache import ProgramCache
from autellix.engine.policy.room import Room
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts
from tests.unit.kv_manager import BLOCK_SIZE, check_blocks, vllm_manager, vllm_request

if TYPE_CHECKING:
    from autellix.engine.vllm_adapter.program_blocks import ProgramBlocks

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

BLOCKS = 40
LONGEST = 60


class Pool:
    """vLLM's KV cache manager over our free queue, and the order in which its free blocks should go."""

    def __init__(self, rng: random.Random) -> None:
        from autellix.engine.vllm_adapter.program_blocks import ProgramBlocks

        self.rng = rng
        self.manager = vllm_manager(BLOCKS, LONGEST)
        self.pool = self.manager.block_pool
        self.blocks: ProgramBlocks = ProgramBlocks(self.pool)
        self.running: list[Any] = []
        self.chains: list[list[bytes]] = [[]]
        self.orphaned: list[int] = []
        """Numbers of the orphaned blocks, in the order in which they became that."""
        self.exposed: list[int] = []
        """Numbers of the exposed blocks, in the same way."""
        self.calls = 0
        self.evicted = 0

    def tokens(self) -> list[int]:
        """Make up a content that shares a part with others."""
        stem, shared, new = self.rng.randrange(3), self.rng.randrange(LONGEST), self.rng.randrange(4)
        return [stem if place < shared else 10 + new for place in range(self.rng.randrange(2, LONGEST))]

    def begin(self) -> None:
        """Let a request in, if the whole of it fits."""
        self.calls += 1
        self.serve(vllm_request(f"r{self.calls}", self.tokens()))

    def serve(self, request: Any) -> bool:
        """Let a request in and compute it, as vLLM's scheduler does; tell whether it fits."""
        blocks, cached, _ = self.manager.get_computed_blocks(request)
        new = request.num_tokens - cached
        if self.manager.allocate_slots(request, new, cached, blocks, full_sequence_must_fit=True) is None:
            return False
        self.forget({block.block_id for block in blocks.blocks[0]})
        request.num_computed_tokens = request.num_tokens
        self.running.append(request)
        self.chains.append(list(request.block_hashes))
        return True

    def leave(self) -> None:
        """Let a running request free its blocks."""
        if self.running:
            self.manager.free(self.running.pop(self.rng.randrange(len(self.running))))

    def expose(self) -> None:
        """Expose a part of what some request had."""
        chain, numbers = self.part()
        self.exposed += numbers
        self.blocks.expose(chain)

    def orphan(self) -> None:
        """Orphan a part of what some request had."""
        chain, numbers = self.part()
        self.orphaned += numbers
        self.blocks.orphan(chain)

    def part(self) -> tuple[list[bytes], list[int]]:
        """Return the end of what some request had, and its free blocks, the last first, in no part any more."""
        chain = self.rng.choice(self.chains[-8:])
        chain = chain[self.rng.randrange(len(chain) + 1) :]
        numbers = [number for name in reversed(chain) for number in reversed(self.free_copies(name))]
        self.forget(set(numbers))
        return chain, numbers

    def forget(self, numbers: set[int]) -> None:
        """Let these blocks be neither exposed nor orphaned."""
        self.exposed = [number for number in self.exposed if number not in numbers]
        self.orphaned = [number for number in self.orphaned if number not in numbers]

    def evict(self) -> None:
        """Evict what some request had, unless another has it."""
        chain = self.rng.choice(self.chains[-8:])
        evicted = {number for name in chain for number in self.free_copies(name)}
        self.evicted += len(evicted)
        self.forget(evicted)
        self.blocks.evict(chain)

        assert [number for name in chain for number in self.free_copies(name)] == []

    def reset(self) -> None:
        """Forget everything, as vLLM does when nothing runs."""
        if not self.running and self.manager.reset_prefix_cache():
            self.forget({*self.exposed, *self.orphaned})
            self.blocks.was_reset()

    def free_copies(self, name: bytes) -> list[int]:
        """Return the numbers of the free blocks of one content, the oldest copy first."""
        found = self.pool.cached_block_hash_to_block._cache.get(name + bytes(4), {})
        copies = found.values() if isinstance(found, dict) else [found]
        return [block.block_id for block in copies if block.ref_cnt == 0]

    def check(self) -> None:
        """Hold the pool against vLLM's own rules, and the order of the free blocks against ours."""
        check_blocks(self.pool)
        free = self.pool.free_block_queue.get_all_free_blocks()
        cached = [block.block_id for block in free if block.block_hash]
        self.forget({*self.exposed, *self.orphaned} - set(cached))
        kinds = [self.kind(block) for block in free]
        assert kinds == sorted(kinds)
        first = [*self.orphaned, *self.exposed]
        assert first == cached[: len(first)]

    def kind(self, block: Any) -> int:
        """Return how soon a free block goes: blank ones, then orphaned, then exposed ones, then those that are kept."""
        if block.block_hash is None:
            return 0
        return 1 if block.block_id in self.orphaned else 2 if block.block_id in self.exposed else 3


@pytest.mark.parametrize("seed", range(8))
def test_vllms_rules_hold(seed: int) -> None:
    """Over random requests, exposures and evictions each free block stands once, in its part, in order."""
    pool = Pool(random.Random(seed))
    actions = [pool.begin] * 8 + [pool.leave] * 8 + [pool.expose, pool.orphan] * 3 + [pool.evict, pool.reset]
    exposed = orphaned = 0
    for _ in range(600):
        pool.rng.choice(actions)()
        pool.check()
        exposed += bool(pool.exposed)
        orphaned += bool(pool.orphaned)

    assert exposed > 40
    assert orphaned > 40
    assert pool.evicted > 10


def test_exposed_blocks_go_first() -> None:
    """Of two requests that left, the later one exposed, a newcomer takes the exposed one's blocks, the last first."""
    pool = Pool(random.Random(0))
    kept, exposed = (vllm_request(name, [stem] * LONGEST) for name, stem in (("kept", 1), ("exposed", 2)))
    for request in (kept, exposed):
        assert pool.serve(request)
        pool.manager.free(request)
    pool.blocks.expose(exposed.block_hashes)
    assert pool.serve(vllm_request("newcomer", [3] * LONGEST))
    blocks = LONGEST // BLOCK_SIZE

    assert blocks == pool.blocks.cached(kept.block_hashes)
    assert BLOCKS - 2 * blocks == pool.blocks.cached(exposed.block_hashes)


def test_orphaned_blocks_go_before_exposed_ones() -> None:
    """Of two requests that left, one exposed and one orphaned later, a newcomer takes the orphaned one's blocks."""
    pool = Pool(random.Random(0))
    exposed, orphaned = (vllm_request(name, [stem] * LONGEST) for name, stem in (("exposed", 1), ("orphaned", 2)))
    for request in (exposed, orphaned):
        assert pool.serve(request)
        pool.manager.free(request)
    pool.blocks.expose(exposed.block_hashes)
    pool.blocks.orphan(orphaned.block_hashes)
    assert pool.serve(vllm_request("newcomer", [3] * LONGEST))
    blocks = LONGEST // BLOCK_SIZE

    assert [blocks, BLOCKS - 2 * blocks] == [pool.blocks.cached(each.block_hashes) for each in (exposed, orphaned)]


def test_a_block_taken_up_again_is_exposed_no_more() -> None:
    """What a request finds exposed in the cache stands with the kept ones when it is free again."""
    pool = Pool(random.Random(0))
    once = vllm_request("once", [1] * 40)
    again = vllm_request("again", [1] * 40 + [2] * 4)
    for request in (once, again):
        assert pool.serve(request)
        pool.manager.free(request)
        if request is once:
            pool.blocks.expose(once.block_hashes)
    pool.forget({*pool.exposed})

    assert pool.blocks.cached(again.block_hashes) == 11
    pool.check()


def test_a_kept_block_is_exposed_no_more() -> None:
    """What was exposed and is kept goes after all that was free, the last of it first."""
    from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

    pool = Pool(random.Random(0))
    first, second = vllm_request("first", [1] * 40), vllm_request("second", [2] * 40)
    for request in (first, second):
        assert pool.serve(request)
        pool.manager.free(request)
    pool.blocks.expose(first.block_hashes)
    pool.blocks.keep(first.block_hashes)
    free = [block.block_hash for block in pool.manager.block_pool.free_block_queue.get_all_free_blocks()]
    named = [make_block_hash_with_group_id(name, 0) for name in (*second.block_hashes, *first.block_hashes)]
    cached = [name for name in free if name is not None]

    assert [*named[:10][::-1], *named[10:][::-1]] == cached


class Programs:
    """Programs that pass a gate over vLLM's blocks, one call after the other."""

    def __init__(self) -> None:
        self.pool = Pool(random.Random(0))
        self.gate = Gate(1000, BLOCK_SIZE, self.pool.blocks)
        self.now_ms = 0.0

    def call(self, program: str, tokens: list[int]) -> Any:
        """Serve a call of a program, which gets no answer, and return its request."""
        self.now_ms += 1.0
        call = QueuedCall(CallId(f"c{self.now_ms}"), ProgramId(program), ProgramFacts(), self.now_ms)
        request = vllm_request(call.call_id, tokens)
        names = list(request.block_hashes)
        passes = self.gate.arrive(call, ThreadId("main"), names, len(tokens), self.now_ms)
        assert passes or self.gate.passing(self.now_ms) == [call]
        assert self.pool.serve(request)
        self.pool.manager.free(self.pool.running.pop())
        self.gate.left(call.call_id, [names], 1, self.now_ms)
        return request


def test_an_ended_program_leaves_its_first_prompt() -> None:
    """With a program its blocks go, at once, but for its first prompt, and for what another has until that is over."""
    programs = Programs()
    programs.call("one", [1] * 2 * BLOCK_SIZE)
    shared = programs.call("one", [1] * 8 * BLOCK_SIZE)
    first = programs.call("other", [2] * 3 * BLOCK_SIZE)
    programs.call("other", [1] * 6 * BLOCK_SIZE)
    cached = []
    for name in ("one", "other"):
        programs.gate.over(ProgramId(name), programs.now_ms)
        cached.append([programs.pool.blocks.cached(request.block_hashes) for request in (shared, first)])

    assert cached == [[6, 3], [0, 3]]
    assert len(programs.pool.pool.cached_block_hash_to_block._cache) == 3


def test_only_what_nobody_claims_is_exposed() -> None:
    """Of what a call with two prompts leaves, the part that a resident claims stays, wherever it stands."""
    pool = Pool(random.Random(0))
    own, shared = [1] * 10 * BLOCK_SIZE, [2] * 10 * BLOCK_SIZE
    requests = [vllm_request("own", own), vllm_request("shared", shared)]
    for request in requests:
        assert pool.serve(request)
        pool.manager.free(request)
    room, resident = Room(BLOCKS, pool.blocks), ProgramCache(ProgramId("resident"), is_resident=True)
    resident.leave_context(ThreadId("main"), [requests[1].block_hashes], 0.0)
    room.claim(resident, resident.left)
    room.expose([request.block_hashes for request in requests])
    for newcomer in ([3] * 14 * BLOCK_SIZE, [4] * 14 * BLOCK_SIZE):
        assert pool.serve(vllm_request(f"newcomer-{newcomer[0]}", newcomer))

    assert [2, 10] == [pool.blocks.cached(request.block_hashes) for request in requests]
