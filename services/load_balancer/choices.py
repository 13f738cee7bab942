"""The rules by which an engine is chosen, each a pure function of what is known at that moment.

A rule takes (home engine, estimated prompt tokens), the candidates with their load, and a source of chance for ties.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from autellix.schemas.ids import EngineId
from autellix.services.core import Chance


class Candidate(NamedTuple):
    """An engine that may take the call."""

    engine_id: EngineId
    used: int
    """LLM calls in it."""


class Choice(NamedTuple):
    """The engine chosen, and why."""

    engine_id: EngineId
    reason: str
    becomes_home: bool = False


Known = tuple[EngineId | None, int]
Rule = Callable[[Known, list[Candidate], Chance], Choice]


def least_used(candidates: list[Candidate], chance: Chance) -> EngineId:
    """Return an engine with the fewest calls, each of several as likely as the others."""
    fewest = min(candidate.used for candidate in candidates)
    return EngineId(chance.choice([c.engine_id for c in candidates if c.used == fewest]))


def autellix(short_prompt_tokens: int) -> Rule:
    """Return paper Algorithm 2: short calls spread, long ones stay where their program's cache is."""

    def choose(known: Known, candidates: list[Candidate], chance: Chance) -> Choice:
        home, prompt_tokens = known
        if prompt_tokens <= short_prompt_tokens:
            return Choice(least_used(candidates, chance), "short prompt: least used")
        if home in {candidate.engine_id for candidate in candidates}:
            return Choice(EngineId(str(home)), "long prompt: home engine")
        return Choice(least_used(candidates, chance), "long prompt: least used becomes home", becomes_home=True)

    return choose


def always_least_used(_short_prompt_tokens: int) -> Rule:
    """Return the rule that looks at load only."""
    return lambda _known, candidates, chance: Choice(least_used(candidates, chance), "least used")


def round_robin(_short_prompt_tokens: int) -> Rule:
    """Return the rule that takes the engines in turn."""
    turns = itertools.count()

    def choose(_known: Known, candidates: list[Candidate], _chance: Chance) -> Choice:
        ordered = sorted(candidate.engine_id for candidate in candidates)
        return Choice(ordered[next(turns) % len(ordered)], "round robin")

    return choose


RULES: dict[str, Callable[[int], Rule]] = {
    "autellix": autellix,
    "least_used": always_least_used,
    "round_robin": round_robin,
}
