"""The paper's own small examples, on a simulated engine whose every step takes as long as the others.

A unit of the paper's figures is 100 steps, so that a call which arrives the moment another ends loses a hundredth of a
unit and not a whole one; waits are told in whole units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

import pytest

from autellix.engine.policy import policy_named
from autellix.engine.policy.accounting import Attained, fold
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.engine.simulation.calls import Ended, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.timing import EngineLimits, EngineOptions, StepTiming
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts

UNIT = 100.0
STEP = StepTiming(fixed_ms=1.0, prefill_token_ms=0.0, decoding_call_ms=0.0, context_token_ms=0.0)

Graph = Mapping[str, tuple[float, list[str]]]
"""The calls of a program in order: how many units each takes, and which calls must end before it."""


def chain(*units: float) -> Graph:
    """Return a program that makes one call after the other."""
    return {str(number): (length, [str(number - 1)] if number else []) for number, length in enumerate(units)}


@dataclass
class Ran:
    """What became of one call; units."""

    began: float
    ended: float
    wait: float
    queues: tuple[int, ...]


@dataclass
class World:
    """One engine and the programs it serves."""

    programs: Mapping[str, Graph]
    policy: str
    slots: int
    bounds: tuple[float, ...] = (1.0, 2.0, 4.0)
    beta: float = inf
    arrivals: Mapping[str, float] = field(default_factory=dict)
    had: Mapping[str, float] = field(default_factory=dict)
    """What programs had attained before they arrive."""
    ran: dict[tuple[str, str], Ran] = field(default_factory=dict)
    attained: dict[str, Attained] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ladder = Ladder(tuple(UNIT * bound for bound in self.bounds))
        limits = EngineLimits(slots=self.slots, kv_tokens=2**20, block_size=16, max_num_batched_tokens=4096,
                              max_model_len=2**20)  # fmt: skip
        queues = CallQueues(policy_named(self.policy), ladder, beta=self.beta)
        self.engine = SimulatedEngine(queues, STEP, EngineOptions(limits=limits, prefix_cache=False))
        self.inherited: dict[tuple[str, str], float] = {}
        self.arrived: dict[tuple[str, str], float] = {}
        had = {name: UNIT * self.had.get(name, 0.0) for name in self.programs}
        self.attained = {name: Attained(service_ms=ms, critical_path_ms=ms) for name, ms in had.items()}

    def run(self) -> "World":
        """Serve every program to its end."""
        due = sorted((UNIT * self.arrivals.get(name, 0.0), number, name) for number, name in enumerate(self.programs))
        while due or self.engine.next_ms < inf:
            if due and due[0][0] <= self.engine.next_ms:
                at_ms, _, name = due.pop(0)
                self._end(at_ms)
                self._submit(name, at_ms)
            else:
                self._end(self.engine.next_ms)
        return self

    def _end(self, now_ms: float) -> None:
        for happening in self.engine.advance(now_ms):
            if isinstance(happening.what, Ended):
                name, call = happening.what.call_id.split("/")
                account = happening.what.account
                self.attained[name] = fold(
                    self.attained[name],
                    service_ms=account.service_ms,
                    wait_ms=account.wait_ms,
                    critical_path_at_arrival_ms=self.inherited[name, call],
                )
                wait = round(account.wait_ms / UNIT)
                began = self.arrived[name, call] / UNIT + wait
                self.ran[name, call] = Ran(round(began), round(happening.at_ms / UNIT), wait, account.queues)
                self._submit(name, happening.at_ms)

    def _submit(self, name: str, now_ms: float) -> None:
        had = self.attained[name]
        facts = ProgramFacts(
            service_ms=had.service_ms, critical_path_ms=had.critical_path_ms, waiting_ms=had.waiting_ms
        )
        for call, (units, parents) in self.programs[name].items():
            if (name, call) not in self.arrived and all((name, parent) in self.ran for parent in parents):
                self.arrived[name, call], self.inherited[name, call] = now_ms, had.critical_path_ms
                call_id, tokens = CallId(f"{name}/{call}"), round(units * UNIT)
                self.engine.add(SimulatedCall(call_id, ProgramId(name), facts, 1, tokens, ()), now_ms)

    def wait(self, name: str = "") -> float:
        """Return what the calls of a program, or of all, waited."""
        return sum(ran.wait for (program, _), ran in self.ran.items() if program.startswith(name))

    @property
    def makespan(self) -> float:
        """When the last call ended."""
        return max(ran.ended for ran in self.ran.values())


FIGURE_2 = {"A": chain(4, 3, 1, 1), "B": chain(3, 3, 4), "C": chain(1, 2), "D": chain(4)}


def test_figure_2_fcfs() -> None:
    """Four programs, two slots: first come, first served waits 18 units, as the paper's figure 2 says."""
    world = World(FIGURE_2, "fcfs", slots=2).run()

    assert {"A": 3, "B": 4, "C": 7, "D": 4} == {name: world.wait(name) for name in FIGURE_2}
    assert world.wait() == 18


@pytest.mark.parametrize("bounds", [(1.0, 2.0, 4.0), (1.0, 2.0), (2.0, 4.0), (2.0,), (1.0, 2.0, 4.0, 8.0)])
def test_figure_2_plas(bounds: tuple[float, ...]) -> None:
    """PLAS waits less; with a first bound of one unit, doubling, it waits the 12 units of the figure."""
    world = World(FIGURE_2, "plas", slots=2, bounds=bounds).run()

    assert world.wait() < 18
    if bounds[0] == 1.0:
        assert world.wait() == 12


FIGURE_9: Graph = {"root": (1, []), "long": (10, ["root"]), "short-1": (3, ["root"]), "short-2": (3, ["root"])}
"""A graph with the figure's two makespans; its own is only a picture, so this one is ours."""


def test_figure_9_makespans() -> None:
    """With two slots the critical path first takes 11 units, last 14; the figure's caption has the two swapped."""
    last_first = {call: FIGURE_9[call] for call in ("root", "short-1", "short-2", "long")}

    assert World({"P": FIGURE_9}, "fcfs", slots=2).run().makespan == 11
    assert World({"P": last_first}, "fcfs", slots=2).run().makespan == 14


def test_figure_9_critical_path() -> None:
    """The one scalar of ATLAS is the longest path, 11 of 17 units of service, in whatever order the calls end."""
    for order in (FIGURE_9, {call: FIGURE_9[call] for call in ("root", "short-1", "short-2", "long")}):
        attained = World({"P": order}, "atlas", slots=2).run().attained["P"]

        assert attained.critical_path_ms == 11 * UNIT
        assert attained.service_ms == 17 * UNIT


@pytest.mark.parametrize(("policy", "expected"), [("mlfq", 5), ("atlas", 3)])
def test_atlas_toy(policy: str, expected: int) -> None:
    """One slot, a sequential program with long calls and one with two short threads: MLFQ waits 5, ATLAS 3.

    The paper gives the totals (NSDI appendix A.3); lengths and arrivals are ours: the threads come with the sequential
    program's second call.
    """
    programs = {"B": chain(2, 2), "A": {"left": (1.0, []), "right": (1.0, [])}}
    world = World(programs, policy, slots=1, bounds=(2.0, 4.0), arrivals={"A": 2.0}).run()

    assert expected == world.wait()


def test_best_of_100() -> None:
    """A hundred threads of one program are in one queue, and advance together, behind a program that had less."""
    many: Graph = {"plan": (4, []), **{f"try-{number}": (2.0, ["plan"]) for number in range(100)}}
    world = World({"many": many, "new": chain(1, 1)}, "atlas", slots=4, arrivals={"new": 4.5}).run()
    tries = [ran for (_, call), ran in world.ran.items() if call.startswith("try")]

    assert {ran.queues[0] for ran in tries} == {3}
    assert world.wait("new") == 0
    assert [ran.began for ran in tries] == sorted(ran.began for ran in tries)


@pytest.mark.parametrize("beta", [2.0, 4.0, 8.0])
def test_beta_bounds_the_wait(beta: float) -> None:
    """A program in the last queue, under a stream of better ones that fill the slot, waits beta times what it had.

    The better ones are short of beta themselves. When everybody has waited beta times its service there is nobody to
    take the time from, and promotion is first come, first served.
    """
    stream = {f"better-{number}": chain(1) for number in range(200)}
    world = World(
        {"long": chain(5), **stream},
        "plas",
        slots=1,
        bounds=(1.0, 10.0),
        beta=beta,
        arrivals={name: float(number) for number, name in enumerate(stream)},
        had={"long": 12.0, **dict.fromkeys(stream, 9.0)},
    )

    assert beta * 12 <= world.run().wait("long") <= beta * 12 + 2
    assert replace(world, beta=inf, ran={}).run().wait("long") == 200


def test_long_program_of_short_calls() -> None:
    """A long program that makes many short calls does not outrank short programs; to MLFQ every call of it is new."""
    programs = {"long": chain(*[1] * 60), **{f"short-{number}": chain(3) for number in range(10)}}
    arrivals = {f"short-{number}": 4.0 + 5 * number for number in range(10)}
    worlds = {policy: World(programs, policy, slots=1, arrivals=arrivals).run() for policy in ("mlfq", "plas", "atlas")}

    assert worlds["plas"].wait("short") == worlds["atlas"].wait("short") == 0
    assert worlds["mlfq"].wait("short") >= 20
    assert {worlds[policy].makespan for policy in worlds} == {90}
