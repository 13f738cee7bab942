"""The gate under any sequence of events: its accounts add up, nobody is lost, and an event costs what it may."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from autellix.engine.policy.call import QueuedCall
from autellix.engine.policy.device import RUN_UP_TO
from autellix.engine.policy.gate import LOOKED_AT, Gate
from autellix.engine.policy.plain_gate import RESUME_AFTER_MS, PlainGate
from autellix.engine.policy.program_cache import GatedCall, ProgramCache
from autellix.engine.policy.residents import ADMIT_UP_TO, SHRINK_ABOVE
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts
from tests.unit.gate_world import POOL_MS, AnyVisitor, Cache, GateWorld, blocks

BLOCKS = 60
programs = st.integers(0, 7).map("p{}".format)
levels = st.sampled_from([0.0, 1.0, 2.0])
choices = st.integers(0, 1000)


class GateMachine(RuleBasedStateMachine):
    """Drives a gate as an engine does, and counts everything anew after each event."""

    gate: type[Gate] = Gate
    tier = 0

    def __init__(self) -> None:
        super().__init__()
        self.sut = GateWorld(BLOCKS, self.gate, self.tier)
        self.calls = 0

    @property
    def running(self) -> list[str]:
        """The calls that passed and have not ended."""
        return [name for name in self.sut.queued if name in self.sut.passed]

    @property
    def live(self) -> list[ProgramCache]:
        """All programs that the gate knows."""
        return [*self.sut.gate._programs.values()]

    @rule(
        program=programs, thread=st.sampled_from("abc"), shared=st.integers(0, 9), own=st.integers(0, 24), level=levels
    )
    def arrive(self, program: str, thread: str, shared: int, own: int, level: float) -> None:
        """A call comes: the system prompt, then what is its thread's own."""
        self.calls += 1
        prompt = blocks(f"{program}{thread}{shared}-", shared + own, after=blocks("system", shared))
        self.sut.call(f"c{self.calls}", prompt, program=program, thread=thread, level_ms=level)

    @precondition(lambda self: self.running)
    @rule(choice=choices, share=st.floats(0, 1))
    def end(self, choice: int, share: float) -> None:
        """A call ends with an answer, or is aborted when it has computed a part of its prompt."""
        name = self.running[choice % len(self.running)]
        prompt = self.sut._prompts[name]
        self.sut.end(name, None if share > 0.5 else prompt[: int(2 * share * len(prompt))])

    @precondition(lambda self: self.sut.held)
    @rule(choice=choices)
    def abort(self, choice: int) -> None:
        """A call is aborted that is held."""
        self.sut.abort(self.sut.held[choice % len(self.sut.held)])

    @precondition(lambda self: self.sut.held)
    @rule(choice=choices, level=levels)
    def rerank(self, choice: int, level: float) -> None:
        """A held call has another rank."""
        self.sut.rerank(self.sut.held[choice % len(self.sut.held)], level)

    @rule(program=programs)
    def over(self, program: str) -> None:
        """A program is over; its id may come again."""
        self.sut.over(program)

    @rule(passed_ms=st.sampled_from([1.0, POOL_MS / 2, POOL_MS, 6 * POOL_MS, RESUME_AFTER_MS]))
    def wait(self, passed_ms: float) -> None:
        """Time passes; who may pass for that is known before."""
        looks = self.sut.now_ms + passed_ms >= self.sut.gate.look_at_ms
        assert looks or not self.sut.wait(passed_ms)
        if looks:
            self.sut.wait(passed_ms)

    @rule(prompt_tokens=st.sampled_from([0, 64, 1000]))
    def step(self, prompt_tokens: int) -> None:
        """The engine computes."""
        self.sut.compute(prompt_tokens)
        self.sut.open()

    @rule(count=st.integers(1, BLOCKS))
    def evict(self, count: int) -> None:
        """The engine needs blocks, and evicts what is exposed."""
        self.sut.cache.evict(self.sut.cache.exposed[:count])

    @invariant()
    def what_is_used_is_what_is_claimed(self) -> None:
        """Used is what residents have, and what others have in flight, each block once, and their blanks."""
        found: set[Hashable] = set()
        blank = 0
        for program in self.live:
            chains = [gated.prompt for gated in program.calls.values() if program.is_resident or not gated.standing]
            if program.is_resident:
                chains += program.left
            assert set().union(*chains) == set(program.claimed)
            found.update(*chains)
            blank += program.claimed_blank
        assert len(found) + blank == self.sut.used

    @invariant()
    def claims_are_counted(self) -> None:
        """Each block counts for as many programs as claim it, and as ever had it."""
        room = self.sut.gate._room
        assert Counter(block for program in self.live for block in program.claimed) == room._claims._claims
        assert Counter(block for program in self.live for block in program.had) == room._had._claims
        assert all(set(program.claimed) <= set(program.had) for program in self.live)

    @invariant()
    def nobody_is_lost(self) -> None:
        """Each call is held or has passed, once; the held ones stand in order."""
        held, passed = self.sut.held, self.sut.passed
        assert len(passed) == len(set(passed))
        assert set(self.sut.queued) == set(held) | set(self.running)
        assert not set(held) & set(passed)
        assert set(self.sut.queued) == set(self.sut.gate._of_call)
        assert all(first < second for first, second in pairwise(gated.standing for gated in self.sut.gate._held))
        assert all(standing == gated.standing for standing, gated in self.sut.gate._held._entries)

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        """While all programs fit together nobody is held."""
        chains = [gated.prompt for program in self.live for gated in program.calls.values()]
        chains += [chain for program in self.live for chain in program.left]
        blank = sum(gated.blank for program in self.live for gated in program.calls.values())
        if len(set().union(*chains)) + blank <= ADMIT_UP_TO * BLOCKS:  # then what runs fits on the device, too
            assert not self.sut.held

    def teardown(self) -> None:
        """When all calls have ended and all programs are over nothing is left."""
        while self.sut.queued:
            name = next(iter(self.sut.queued))
            self.sut.abort(name) if name in self.sut.held else self.sut.end(name)
        for program in self.live:
            self.sut.over(program.program_id)
        assert (0, [], []) == (self.sut.used, self.live, self.sut.residents)
        assert 0 == len(self.sut.gate._room._had)
        assert set(self.sut.cache.orphaned) == self.sut.cache.there


class TierMachine(GateMachine):
    """The same with a tier that holds what two and a half devices do."""

    tier = 5 * BLOCKS // 2

    def __init__(self) -> None:
        super().__init__()
        self.residents_before: set[str] = set()

    @property
    def in_flight(self) -> list[GatedCall]:
        """The calls that passed, as the gate knows them."""
        return [gated for program in self.live for gated in program.calls.values() if gated.standing is None]

    @invariant()
    def what_runs_fits_on_the_device(self) -> None:
        """Calls that passed, each block once, take 0.90 of the device at most, but for one that is alone."""
        needed = len(set().union(*(gated.prompt for gated in self.in_flight)))
        needed += sum(gated.blank for gated in self.in_flight)
        assert needed == self.sut.gate._device.used
        assert len(self.in_flight) == 1 or needed <= RUN_UP_TO * BLOCKS

    @invariant()
    def who_is_let_in_fits_into_the_tier(self) -> None:
        """When a program becomes a resident 0.98 of the tier are claimed at most, visitors included, or it is alone."""
        residents = {*self.sut.residents}
        if residents - self.residents_before and len(residents) > 1:
            assert self.sut.used <= SHRINK_ABOVE * self.tier
        self.residents_before = residents

    @invariant()
    def nobody_waits_for_an_idle_device(self) -> None:
        """While no call runs no resident's call is held, unless its program is to leave."""
        assert self.in_flight or not self.sut.gate._residents.held


class TierPlainMachine(TierMachine):
    """The same for the gate that prefers the small."""

    gate = PlainGate


class AnyVisitorMachine(GateMachine):
    """The same where large calls may visit, too."""

    gate = AnyVisitor


class PlainGateMachine(GateMachine):
    """The same for the gate that prefers the small."""

    gate = PlainGate


TestGate = GateMachine.TestCase
TestGate.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestAnyVisitor = AnyVisitorMachine.TestCase
TestAnyVisitor.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestTier = TierMachine.TestCase
TestTier.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestTierPlain = TierPlainMachine.TestCase
TestTierPlain.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestPlainGate = PlainGateMachine.TestCase
TestPlainGate.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)


@dataclass
class Touches:
    """How often blocks were looked up."""

    count: int = 0


class Touched(str):
    """The name of a block that counts its look-ups."""

    touches: Touches

    def __hash__(self) -> int:
        self.touches.count += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


class Crowd:
    """A gate with a resident of 60 of 100 blocks, and so many programs of 41 that are held."""

    def __init__(self, held: int) -> None:
        self.touches = Touches()
        self.gate = Gate(100, 256, Cache())
        self.number = 0
        self.arrive("first", 59)
        for _ in range(held):
            self.arrive(f"p{self.number}", 40)

    def arrive(self, program: str, count: int) -> QueuedCall:
        """Let a program's call come."""
        self.number += 1
        call = QueuedCall(CallId(f"c{self.number}"), ProgramId(program), ProgramFacts(), 0.0, place=self.number)
        passes = self.gate.arrive(call, ThreadId("main"), self.chain(program, count), count * 256, 0.0)
        assert passes or [call] == self.gate.passing(0.0) or self.gate.has_held
        return call

    def chain(self, program: str, count: int) -> list[Hashable]:
        """Return blocks of a program that are counted."""
        chain = [Touched(block) for block in blocks(program, count)]
        for block in chain:
            block.touches = self.touches
        return [*chain]

    def events(self) -> Iterable[int]:
        """Yield how many blocks were looked up at each of some events."""
        for event in (
            lambda: self.arrive("new", 40),
            lambda: self.arrive("first", 59),
            lambda: self.gate.left(CallId(f"c{self.number}"), [self.chain("first", 59)], 256, 0.0),
            lambda: self.gate.reranked(self.gate.held_calls[-1].call, 0.0),
            lambda: self.gate.passing(0.0),
            lambda: self.gate.left(self.gate.held_calls[1].call.call_id, [], 0, 0.0),
            lambda: self.gate.passing(0.0),
            lambda: self.gate.left(CallId("c1"), [self.chain("first", 59)], 256, 0.0),
            lambda: self.gate.over(ProgramId("first"), 0.0),
            lambda: self.gate.passing(0.0),
        ):
            before = self.touches.count
            event()
            yield self.touches.count - before


def test_an_event_costs_the_same_however_many_are_held() -> None:
    """With 5,000 programs held as many blocks are looked up as with 20, whatever happens: few times those concerned."""
    few, many = [*Crowd(20).events()], [*Crowd(5000).events()]

    assert few == many
    assert max(many) < 12 * 60 + LOOKED_AT * 2 * 7
