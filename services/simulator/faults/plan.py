"""What one seed decides: the programs that come, the engines, and what goes wrong when."""

import random
from typing import Final, Literal, NamedTuple

Kind = Literal["crash", "freeze", "outage", "wall"]
Shape = Literal["single", "named", "chain", "fan"]

SERVICES: Final = ("session-manager", "process-table", "load-balancer")
SERVING_MS: Final = 60_000.0
"""Programs and faults begin within this time, unless it is said otherwise."""


class CallPlan(NamedTuple):
    """One call."""

    prompt_tokens: int
    output_tokens: int
    stream: bool
    pause_ms: float
    """Before it is submitted."""
    deadline_ms: float | None
    hang_up_ms: float | None
    """After so long its client goes away, if it has not ended."""


class ProgramPlan(NamedTuple):
    """One program: calls in turn, or the first one and then all others at once."""

    number: int
    at_ms: float
    shape: Shape
    name: str
    """Of a named session; two programs may have the same."""
    calls: tuple[CallPlan, ...]
    end_ms: float | None
    """When its session is ended, whatever runs; None: with its last call, or never if nobody can."""


class Fault(NamedTuple):
    """Something that goes wrong."""

    at_ms: float
    kind: Kind
    place: str
    for_ms: float
    shift_ms: float = 0.0
    """By which the wall clock jumps."""


class Plan(NamedTuple):
    """All of it."""

    seed: int
    engines: int
    programs: tuple[ProgramPlan, ...]
    faults: tuple[Fault, ...]
    delay_ms: float
    """The longest that a message is under way."""
    repeated: float
    """The share of messages between services that come twice."""


def plan_of(seed: int, *, programs: int = 8, minutes: float = SERVING_MS / 60_000) -> Plan:
    """Return what a seed decides; the same in every process."""
    chance = random.Random(seed)  # noqa: S311 - to be replayed
    serving_ms = minutes * 60_000
    engines = chance.randint(1, 3)
    places = [*SERVICES, *(f"engine-{number}" for number in range(engines))]
    return Plan(
        seed=seed,
        engines=engines,
        programs=tuple(_program(number, chance, serving_ms) for number in range(chance.randint(1, programs))),
        faults=tuple(sorted(_fault(places, chance, serving_ms) for _ in range(chance.randint(0, 6)))),
        delay_ms=chance.choice([0.0, 2.0, 50.0, 400.0]),
        repeated=chance.choice([0.0, 0.0, 0.05, 0.3]),
    )


def _program(number: int, chance: random.Random, serving_ms: float) -> ProgramPlan:
    shape: Shape = chance.choice(["single", "named", "chain", "chain", "fan"])
    at_ms = chance.uniform(0, serving_ms)
    ends = shape != "single" and chance.random() < 0.2
    return ProgramPlan(
        number=number,
        at_ms=at_ms,
        shape=shape,
        name=f"session-{chance.randrange(4)}" if shape == "named" else "",
        calls=tuple(_call(chance) for _ in range(1 if shape == "single" else chance.randint(1, 6))),
        end_ms=at_ms + chance.uniform(0, serving_ms / 3) if ends else None,
    )


def _call(chance: random.Random) -> CallPlan:
    return CallPlan(
        prompt_tokens=chance.choice([20, 200, 2000]),
        output_tokens=chance.choice([1, 20, 200]),
        stream=chance.random() < 0.5,
        pause_ms=chance.choice([0.0, 100.0, 3000.0]),
        deadline_ms=chance.uniform(10, 10_000) if chance.random() < 0.1 else None,
        hang_up_ms=chance.uniform(0, 5000) if chance.random() < 0.1 else None,
    )


def _fault(places: list[str], chance: random.Random, serving_ms: float) -> Fault:
    at_ms, kind = chance.uniform(0, serving_ms), chance.choices(("crash", "freeze", "outage", "wall"), (6, 3, 1, 1))[0]
    for_ms = chance.choice([200.0, 2000.0, 8000.0, 30_000.0])
    match kind:
        case "crash":
            return Fault(at_ms, "crash", chance.choice(places), for_ms)
        case "freeze":
            return Fault(at_ms, "freeze", chance.choice([place for place in places if place not in SERVICES]), for_ms)
        case "outage":
            return Fault(at_ms, "outage", "bus", for_ms)
    return Fault(at_ms, "wall", "clock", 0.0, chance.choice([-1, 1]) * chance.choice([2000.0, 30_000.0, 300_000.0]))
