"""The rules by which an engine is chosen, each a function of what is known at that moment.

A rule takes what is known of the call, the candidates with their load, and a source of chance for ties.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from autellix.schemas.ids import EngineId
from autellix.services.core import Chance
from autellix.services.load_balancer.prefixes import PrefixTree, prompt_of

CROWDED = 2.0
"""An engine with more than so many times the calls of the least used is passed over, the new call counted at both."""


class Known(NamedTuple):
    """The call to be sent."""

    home: EngineId | None
    """Of its program."""
    prompt_tokens: int
    """An estimate."""
    body: bytes
    """The request as JSON text."""


class Candidate(NamedTuple):
    """An engine that may take the call."""

    engine_id: EngineId
    used: int
    """LLM calls in it."""
    prefixes: PrefixTree
    """Of the prompts sent there, if the rule adds them."""
    wait_ms: float = 0.0
    """How long a program that has no cache there is likely to be held."""


class Choice(NamedTuple):
    """The engine chosen, and why."""

    engine_id: EngineId
    reason: str
    becomes_home: bool = False
    wait_ms: float = 0.0
    """How long the call is likely to be held, if it is no call to a home."""


Rule = Callable[[Known, list[Candidate], Chance], Choice]


def least_used(candidates: list[Candidate], chance: Chance) -> EngineId:
    """Return an engine with the fewest calls, each of several as likely as the others."""
    fewest = min(candidate.used for candidate in candidates)
    return EngineId(chance.choice([c.engine_id for c in candidates if c.used == fewest]))


def autellix(short_prompt_tokens: int) -> Rule:
    """Return paper Algorithm 2: short calls spread, long ones stay where their program's cache is.

    Beyond the paper, calls that are spread go where programs are held for the shortest time, if any are held.
    """

    def choose(known: Known, candidates: list[Candidate], chance: Chance) -> Choice:
        if known.prompt_tokens <= short_prompt_tokens:
            return _least_held(candidates, chance, "short prompt: {}")
        if known.home in {candidate.engine_id for candidate in candidates}:
            return Choice(EngineId(str(known.home)), "long prompt: home engine")
        return _least_held(candidates, chance, "long prompt: {} becomes home")._replace(becomes_home=True)

    return choose


def _least_held(candidates: list[Candidate], chance: Chance, reason: str) -> Choice:
    """Return the choice of the least used among the engines with the shortest wait; `reason` has room for why."""
    wait_ms = min(candidate.wait_ms for candidate in candidates)
    shortest = [candidate for candidate in candidates if candidate.wait_ms == wait_ms]
    why = "least used" if len(shortest) == len(candidates) else "shortest wait"
    return Choice(least_used(shortest, chance), reason.format(why), wait_ms=wait_ms)


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


def prefix_tree(_short_prompt_tokens: int) -> Rule:
    """Return Preble's rule E2 (arXiv 2407.00023): exploit the cache where it holds most of a prompt, else explore.

    Load is the calls in an engine, where Preble estimates its recent work.
    """

    def choose(known: Known, candidates: list[Candidate], chance: Chance) -> Choice:
        prompt = prompt_of(known.body)
        longest = max(candidate.prefixes.matched(prompt) for candidate in candidates)
        holders = [candidate for candidate in candidates if candidate.prefixes.matched(prompt) == longest]
        if not prompt.is_mostly(longest):
            choice = Choice(least_used(candidates, chance), "short prefix: least used")
        elif _crowded(holders, candidates):
            choice = Choice(least_used(candidates, chance), "long prefix, but crowded: least used")
        else:
            choice = Choice(least_used(holders, chance), "long prefix: longest match")
        chosen = next(candidate for candidate in candidates if candidate.engine_id == choice.engine_id)
        chosen.prefixes.add(prompt, known.prompt_tokens)
        return choice

    return choose


def _crowded(holders: list[Candidate], candidates: list[Candidate]) -> bool:
    """Tell whether even the least used of `holders` is passed over."""
    there, least = (min(each.used for each in some) + 1 for some in (holders, candidates))
    return there > CROWDED * least


RULES: dict[str, Callable[[int], Rule]] = {
    "autellix": autellix,
    "least_used": always_least_used,
    "prefix_tree": prefix_tree,
    "round_robin": round_robin,
}
