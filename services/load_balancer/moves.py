"""When an engine takes over what another one holds.

Rules:
* A call goes home first: whether its program's cache is still kept there, only that engine knows. If it is held there,
  it may be moved.
* An engine where nothing waits takes over one held program with each of its heartbeats, however many balancers hear it,
  so that it can say in between that it has no more room. It takes from the engine with the longest expected wait.
* What is moved takes less time to compute anew than that wait. The time of a token is measured by the engine that takes
  over, or by the other while it has not computed anything.
* The engine that holds chooses the program and gives its calls back (`engine_worker/core.py`).
"""

from collections.abc import Iterable

from autellix.schemas import subjects
from autellix.schemas.messages import ReleaseHeld
from autellix.services.core import Out
from autellix.services.load_balancer.engine import Engine


def take_over(taker: Engine, engines: Iterable[Engine]) -> list[Out]:
    """Return the order to give back a held program, if there is one that `taker` had better run."""
    load = taker.load
    if load.state != "ready" or load.waiting or load.programs_held:
        return []
    holders = [each for each in engines if each.load.programs_held and {*each.load.models} & {*load.models}]
    if not holders:
        return []
    fullest = max(holders, key=lambda each: each.load.expected_wait_ms)
    token_ms = _token_ms(taker, fullest)
    if not token_ms:
        return []
    tokens_max = int(fullest.load.expected_wait_ms / token_ms)
    order = ReleaseHeld(prompt_tokens_max=tokens_max, models=load.models, taker=load.engine_id, asked_at_ms=load.at_ms)
    return [Out(subjects.engine_release(fullest.load.engine_id), order)]


def why_moved(holder: Engine, taker: Engine, prompt_tokens: int) -> str:
    """Return the reason for a route from one engine to another."""
    wait_s, again_s = (ms / 1000 for ms in (holder.load.expected_wait_ms, prompt_tokens * _token_ms(taker, holder)))
    return f"home holds: {wait_s:.1f} s against {again_s:.1f} s to compute again"


def _token_ms(taker: Engine, holder: Engine) -> float:
    return taker.token_ms or holder.token_ms
