"""A gate before a small cache in memory, with short words for what programs do.

A block has 256 tokens, as many as an answer has, so a call of a prompt of n blocks takes n + 1. The cache keeps all it
is given: what a test asks of it is what was exposed and evicted.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from itertools import pairwise

from autellix.engine.policy.call import QueuedCall
from autellix.engine.policy.gate import Gate
from autellix.engine.policy.gate_state import ANSWER_TOKENS
from autellix.engine.policy.program_cache import ProgramCache
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

POOL_MS = 1000.0
"""T_pool, once a prompt was computed."""
NEVER = float("inf")


def blocks(name: str, count: int, *, after: Sequence[str] = ()) -> list[str]:
    """Return a chain: other blocks, then as many as are missing of `count`, which bear this name."""
    return [*after, *(f"{name}.{place}" for place in range(len(after), count))]


class Cache:
    """A prefix cache, as `engine.policy.room` wants it, that evicts only when it is told to."""

    def __init__(self) -> None:
        self.there: set[Hashable] = set()
        self.tier: set[Hashable] = set()
        """What a tier has, if a test says so."""
        self.in_use: Counter[Hashable] = Counter()
        self._exposed: dict[Hashable, None] = {}
        self._orphaned: dict[Hashable, None] = {}

    def cached(self, chain: Sequence[Hashable]) -> int:
        """Return how many blocks of a chain are cached, counted up to the first that is not."""
        return next((place for place, block in enumerate(chain) if block not in self.there), len(chain))

    def in_tier(self, chain: Sequence[Hashable], first: int) -> int:
        """Return how many blocks of a chain a tier has, from the `first` on, up to the first that it lacks."""
        rest = chain[first:]
        return next((place for place, block in enumerate(rest) if block not in self.tier), len(rest))

    def expose(self, blocks: Collection[Hashable]) -> None:
        """Let blocks that no call holds be evicted before all others."""
        self._move(blocks, self._exposed)

    def orphan(self, blocks: Collection[Hashable]) -> None:
        """Let blocks that no call holds be evicted before the exposed ones."""
        self._move(blocks, self._orphaned)

    def keep(self, blocks: Collection[Hashable]) -> None:
        """Let blocks be neither exposed nor orphaned any more."""
        self._take_up(blocks)

    def evict(self, blocks: Collection[Hashable]) -> None:
        """Evict blocks, unless a call holds them."""
        gone = {block for block in blocks if not self.in_use[block]}
        self.there -= gone
        self._take_up(gone)

    @property
    def exposed(self) -> list[Hashable]:
        """Return what is exposed, in the order of exposure."""
        return [*self._exposed]

    @property
    def orphaned(self) -> list[Hashable]:
        """Return what is orphaned, in the order in which it became that."""
        return [*self._orphaned]

    def hold(self, chain: Sequence[Hashable]) -> None:
        """Let a call compute these blocks, or find them, and hold them."""
        self.there.update(chain)
        self.in_use.update(chain)
        self._take_up(chain)

    def let_go(self, chain: Sequence[Hashable]) -> None:
        """Let a call that held these blocks hold them no more."""
        self.in_use.subtract(chain)

    def _move(self, blocks: Collection[Hashable], part: dict[Hashable, None]) -> None:
        free = [block for block in blocks if block in self.there and not self.in_use[block]]
        self._take_up(free)
        part.update(dict.fromkeys(free))

    def _take_up(self, blocks: Collection[Hashable]) -> None:
        for block in blocks:
            self._exposed.pop(block, None)
            self._orphaned.pop(block, None)


class NoVisits(Gate):
    """A gate that lets residents pass and nobody else."""

    VISIT_SHARE = 0.0


class AnyVisitor(Gate):
    """A gate where large calls may visit, too."""

    VISITOR_SHARE = 1.0


class GateWorld:
    """Programs at a gate; who passes computes its prompt at once.

    Args:
        count: Blocks of the engine.
        gate: The gate's class.
        tier: Blocks of a tier in CPU memory.
    """

    def __init__(self, count: int = 100, gate: type[Gate] = Gate, tier: int = 0) -> None:
        self.cache = Cache()
        self.gate = gate(count, ANSWER_TOKENS, self.cache, tier)
        self.now_ms = 0.0
        self.passed: list[str] = []
        """Calls, in the order in which they passed."""
        self.queued: dict[str, QueuedCall] = {}
        self._prompts: dict[str, list[str]] = {}
        self._before: dict[str, str] = {}
        """What stands before each block, in whatever chain."""

    def call(
        self,
        name: str,
        prompt: int | list[str],
        *,
        program: str = "",
        thread: str = "main",
        level_ms: float = 0.0,
        priority: int = 0,
    ) -> None:
        """Let a call of a program come; without more words it is the only one of a program of its own name.

        Args:
            name: Its own.
            prompt: Its blocks, or how many it has of its program's own.
            program: Its program's; that of the call, if it is not given.
            thread: Its thread's.
            level_ms: Where it stands in the order; equal ones go as they come.
            priority: The client's.
        """
        program_id = ProgramId(program or name)
        chain = blocks(program_id, prompt) if isinstance(prompt, int) else prompt
        self._check(chain)
        queued = QueuedCall(CallId(name), program_id, ProgramFacts(), self.now_ms, priority, "plas", lo_ms=level_ms)
        queued.place = len(self._prompts)
        self.queued[name], self._prompts[name] = queued, chain
        if self.gate.arrive(queued, ThreadId(thread), chain, len(chain) * ANSWER_TOKENS, self.now_ms):
            self._pass(name)
        self.open()

    def open(self) -> list[str]:
        """Let those pass that may now, and return them."""
        passing: list[str] = [queued.call_id for queued in self.gate.passing(self.now_ms)]
        for name in passing:
            self._pass(name)
        return passing

    def end(self, name: str, context: int | list[str] | None = None) -> list[str]:
        """Let a call that passed end, and return who passes then.

        Args:
            name: The call.
            context: What it leaves: blocks, or how many of its program's own; if not given, its prompt and an answer.
        """
        program_id, chain = self.queued.pop(name).program_id, self._prompts[name]
        if context is None:
            context = [*chain, f"{name}'s answer"]
        left = blocks(program_id, context) if isinstance(context, int) else context
        self._check(left)
        self.cache.let_go(chain)
        self.cache.there.update(left)
        self.gate.left(CallId(name), [left], ANSWER_TOKENS, self.now_ms)
        return self.open()

    def abort(self, name: str) -> list[str]:
        """Let a call end that is held, and return who passes then."""
        del self.queued[name]
        self.gate.left(CallId(name), [], 0, self.now_ms)
        return self.open()

    def over(self, program: str) -> list[str]:
        """Let a program be over, and return who passes then."""
        self.gate.over(ProgramId(program), self.now_ms)
        return self.open()

    def rerank(self, name: str, level_ms: float, *, promoted: bool = False) -> list[str]:
        """Give a held call another rank, by service or by a promotion, and return who passes then."""
        self.queued[name].lo_ms, self.queued[name].is_promoted = level_ms, promoted
        self.gate.reranked(self.queued[name], self.now_ms)
        return self.open()

    def wait(self, passed_ms: float) -> list[str]:
        """Let time pass, and return who passes then."""
        self.now_ms += passed_ms
        return self.open()

    def compute(self, tokens: int = 256) -> None:
        """Let the engine compute tokens of prompts: now T_pool is known."""
        token_ms = POOL_MS / (self.gate._room.blocks * ANSWER_TOKENS)
        self.gate.step(tokens * token_ms, prompt_tokens=tokens, tokens=tokens, now_ms=self.now_ms)

    def program(self, name: str) -> ProgramCache:
        """Return a live program."""
        return self.gate._programs[ProgramId(name)]

    @property
    def held(self) -> list[str]:
        """Return the held calls, the first first."""
        return [gated.call.call_id for gated in self.gate.held_calls]

    @property
    def residents(self) -> list[str]:
        """Return the residents, in the order in which they came."""
        return [*self.gate._residents._programs]

    @property
    def used(self) -> int:
        """Return how many blocks are claimed."""
        return self.gate._room.used

    def _check(self, chain: Sequence[str]) -> None:
        """Check that a block's name stands for all before it, too."""
        assert all(self._before.setdefault(block, before) == before for before, block in pairwise(["", *chain]))

    def _pass(self, name: str) -> None:
        self.passed.append(name)
        self.cache.hold(self._prompts[name])
