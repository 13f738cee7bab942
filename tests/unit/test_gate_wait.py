"""Nobody waits for ever at the gate: random programs that never end, against the bound that its rules give."""

import heapq
import random
from collections.abc import Callable

import pytest

from autellix.engine.policy.gate import Gate
from tests.unit.gate_world import POOL_MS, AnyVisitor, GateWorld, NoVisits, blocks

LONGEST_CALL_MS = 3 * POOL_MS
BOUND_MS = (max(Gate.TURN_POOLS) + 1) * POOL_MS + LONGEST_CALL_MS
"""A turn ends, the calls in flight end, and who then makes no further call is away for T_pool."""
PROMOTED_AFTER_MS = 4 * POOL_MS
UNTIL_MS = 150 * POOL_MS


class Agents:
    """Programs of up to three threads that call and think in turn; all caches together fit several times over.

    Who is held for long is promoted, as by `queues.py`: from then on it ranks before all that come.
    """

    def __init__(self, seed: int, gate: type[Gate], tier: int = 0) -> None:
        self.sut = GateWorld(gate=gate, tier=tier)
        self.sut.compute()
        self.waited_ms: dict[str, float] = {}
        """How long each was the first that waits, and promoted."""
        self._chance = random.Random(seed)
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self._orders = self._seen = 0
        self._running: set[str] = set()
        self._after: dict[str, Callable[[], None]] = {}
        """What a call's thread does next."""
        for number in range(12):
            largest = self._chance.choice([10, 20, 40, 95])
            for thread in range(self._chance.randint(1, 3)):
                self._think(f"p{number}", f"t{thread}", largest)

    def run(self) -> None:
        """Let them live until the end of the test."""
        while self.sut.now_ms < UNTIL_MS:
            first = self.sut.held[0] if self.sut.held else ""
            passed_ms = min(self._todo[0][0], self.sut.gate.look_at_ms, self._opens_at_ms()) - self.sut.now_ms
            if first and self.sut.queued[first].lo_ms == 0:
                self.waited_ms[first] = self.waited_ms.get(first, 0.0) + passed_ms
            self._let_pass(passed_ms)
            while self._todo[0][0] <= self.sut.now_ms:
                heapq.heappop(self._todo)[2]()
            for name in self.sut.passed[self._seen :]:
                self._at(self._chance.random() * LONGEST_CALL_MS, lambda name=name: self._end(name))  # type: ignore[misc]
                self._running.add(name)
            self._seen = len(self.sut.passed)

    def _let_pass(self, passed_ms: float) -> None:
        at_ms = self.sut.now_ms + passed_ms
        if self._running:
            self.sut.gate.step(passed_ms, prompt_tokens=0, tokens=1, now_ms=at_ms)
        self.sut.wait(passed_ms)

    def _opens_at_ms(self) -> float:
        opens_in_ms = self.sut.gate.opens_in_ms
        return self.sut.now_ms + max(1.0, opens_in_ms) if opens_in_ms and self._running else UNTIL_MS

    def _at(self, in_ms: float, action: Callable[[], None]) -> None:
        self._orders += 1
        heapq.heappush(self._todo, (self.sut.now_ms + in_ms, self._orders, action))

    def _think(self, program: str, thread: str, largest: int) -> None:
        think_ms = self._chance.choice([0.0, 0.2, 1.5]) * POOL_MS * self._chance.random()
        self._at(think_ms, lambda: self._call(program, thread, largest))

    def _call(self, program: str, thread: str, largest: int) -> None:
        name = f"{program}-{thread}-{self._orders}"
        count = self._chance.randrange(largest)
        prompt = blocks(f"{program}{thread}/{count // 2}-", count, after=blocks(program, count // 2))
        self._after[name] = lambda: self._think(program, thread, largest)
        self.sut.call(name, prompt, program=program, thread=thread, level_ms=self._chance.choice([1.0, 2.0]))
        self._at(PROMOTED_AFTER_MS, lambda: self._promote(name))

    def _promote(self, name: str) -> None:
        if name in self.sut.held:
            self.sut.rerank(name, 0.0, promoted=True)

    def _end(self, name: str) -> None:
        self._running.remove(name)
        self.sut.end(name)
        self._after.pop(name)()


@pytest.mark.parametrize("gate", [Gate, AnyVisitor, NoVisits])
@pytest.mark.parametrize("seed", range(5))
def test_the_first_that_waits_passes_in_time(seed: int, gate: type[Gate]) -> None:
    """Who is first and ranks before all residents passes within a turn, T_pool and the longest call."""
    agents = Agents(seed, gate)
    agents.run()

    assert max(agents.waited_ms.values()) <= BOUND_MS
    assert len(agents.sut.passed) > 200


@pytest.mark.parametrize("gate", [Gate, AnyVisitor, NoVisits])
@pytest.mark.parametrize("seed", range(5))
def test_with_a_tier_the_first_that_waits_passes_in_time(seed: int, gate: type[Gate]) -> None:
    """Once it is resident it waits for the device, too, until the calls that run have ended: one longest call more."""
    agents = Agents(seed, gate, tier=180)
    agents.run()

    assert max(agents.waited_ms.values()) <= BOUND_MS + LONGEST_CALL_MS
    assert len(agents.sut.passed) > 200


def test_what_a_thread_left_long_ago_is_room_for_others() -> None:
    """When a resident's next call makes it forget that, who fits now passes at once, not with the next end."""
    world = GateWorld(60)
    world.compute()
    world.call("a", blocks("p a", 30), program="p", thread="a")
    world.call("b", blocks("p b", 1), program="p", thread="b")
    world.end("a")
    world.call("c", blocks("q", 26), program="q", level_ms=1.0)
    world.wait(6 * POOL_MS)
    before = world.held
    world.call("d", blocks("p d", 1), program="p", thread="d")

    assert before == ["c"]
    assert world.held == []
