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
    work_ms: float = 0.0
    """What a call of its model takes of an engine's time, on the mean; 0: not known yet."""


class Candidate(NamedTuple):
    """An engine that may take the call."""

    engine_id: EngineId
    used: int
    """LLM calls in it."""
    prefixes: PrefixTree
    """Of the prompts sent there, if the rule adds them."""
    wait_ms: float = 0.0
    """How long a program that has no cache there is likely to be held."""
    token_ms: float = 0.0
    """How long it computes a token of a prompt; 0: it has not measured that."""


class Choice(NamedTuple):
    """The engine chosen, and why."""

    engine_id: EngineId
    reason: str
    becomes_home: bool = False
    wait_ms: float = 0.0
    """How long the call is likely to be held, if it is no call to a home."""


Rule = Callable[[Known, list[Candidate], Chance], Choice]


def least_used(candidates: list[Candidate], chance: Chance) -> Candidate:
    """Return an engine with the fewest calls, each of several as likely as the others."""
    fewest = min(candidate.used for candidate in candidates)
    least = {candidate.engine_id: candidate for candidate in candidates if candidate.used == fewest}
    return least[EngineId(chance.choice([*least]))]


def shortest_wait(candidates: list[Candidate]) -> list[Candidate]:
    """Return the engines where a program without a cache is held for the shortest time."""
    shortest_ms = min(candidate.wait_ms for candidate in candidates)
    return [candidate for candidate in candidates if candidate.wait_ms == shortest_ms]


def home(short_prompt_tokens: int) -> Rule:
    """Return our rule: a program begins where its first prompt is cached, and stays there while that is the sooner way.

    Where it begins is Preble's choice. It leaves home for an engine that would be done with the call sooner, though the
    whole prompt is computed again.
    """
    begin = prefix_tree(short_prompt_tokens)

    def choose(known: Known, candidates: list[Candidate], chance: Chance) -> Choice:
        nearest = shortest_wait(candidates)
        at_home = next((candidate for candidate in candidates if candidate.engine_id == known.home), None)
        if at_home is None:
            choice = begin(known, nearest, chance)
            why = choice.reason if len(nearest) == len(candidates) else f"shortest wait, {choice.reason}"
            return Choice(choice.engine_id, f"no home, {why}", becomes_home=True, wait_ms=nearest[0].wait_ms)
        away = _leave(known, at_home, least_used(nearest, chance))
        return away or Choice(at_home.engine_id, "home engine")

    return choose


def _leave(known: Known, at_home: Candidate, other: Candidate) -> Choice | None:
    """Return the choice of the other engine if it would be done with a call sooner than its home, as far as is known.

    An engine divides its time among its calls, so a call takes its own work times their number. Of an engine that holds
    programs this says nothing: whether the call may pass, only that engine knows.
    """
    token_ms = other.token_ms or at_home.token_ms
    if at_home.wait_ms or other.wait_ms or not token_ms:
        return None
    here_ms = (at_home.used + 1) * known.work_ms
    there_ms = (other.used + 1) * (known.work_ms + known.prompt_tokens * token_ms)
    if here_ms <= there_ms:
        return None
    reason = f"home is busy: {here_ms / 1000:.1f} s against {there_ms / 1000:.1f} s, the prompt computed again"
    return Choice(other.engine_id, reason, becomes_home=True)


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
    shortest = shortest_wait(candidates)
    why = "least used" if len(shortest) == len(candidates) else "shortest wait"
    chosen = least_used(shortest, chance)
    return Choice(chosen.engine_id, reason.format(why), wait_ms=chosen.wait_ms)


def always_least_used(_short_prompt_tokens: int) -> Rule:
    """Return the rule that looks at load only."""
    return lambda _known, candidates, chance: Choice(least_used(candidates, chance).engine_id, "least used")


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
            chosen, reason = least_used(candidates, chance), "short prefix: least used"
        elif _crowded(holders, candidates):
            chosen, reason = least_used(candidates, chance), "long prefix, but crowded: least used"
        else:
            chosen, reason = least_used(holders, chance), "long prefix: longest match"
        chosen.prefixes.add(prompt, known.prompt_tokens)
        return Choice(chosen.engine_id, reason)

    return choose


def _crowded(holders: list[Candidate], candidates: list[Candidate]) -> bool:
    """Tell whether even the least used of `holders` is passed over."""
    there, least = (min(each.used for each in some) + 1 for some in (holders, candidates))
    return there > CROWDED * least


RULES: dict[str, Callable[[int], Rule]] = {
    "home": home,
    "autellix": autellix,
    "least_used": always_least_used,
    "prefix_tree": prefix_tree,
    "round_robin": round_robin,
}

KEEP_HOMES = frozenset({"home", "autellix"})
"""The rules by which programs have homes. The others are there to compare with, and move nothing."""
