"""vLLM's running list in order of rank, whatever vLLM appends and removes and however ranks change in between."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from vllm.v1.request import Request

    from autellix.engine.policy.call import Rank

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def make(name: str) -> Request:
    """Return a request of vLLM's."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    return Request(name, [1], SamplingParams(max_tokens=1), None)


@settings(deadline=None)  # the first example imports vLLM
@given(st.integers(0, 10_000))
def test_sorted_after_anything(seed: int) -> None:
    """After each restoration the list is sorted and holds exactly who runs; two requests of a call share its rank."""
    from autellix.engine.vllm_adapter.running_order import RunningOrder

    chance = random.Random(seed)
    ranks: dict[str, Rank] = {}
    order = RunningOrder(lambda request: ranks[request.request_id.split("-")[0]])
    running: list[Request] = []
    for number in range(30):
        for request in chance.sample(running, chance.randint(0, min(2, len(running)))):  # ended or preempted
            running.remove(request)
            order.forget(request)
        for call in {request.request_id.split("-")[0] for request in chance.sample(running, len(running) // 3)}:
            ranks[call] = (0, float(chance.randint(0, 3)), number)
            for request in running:
                if request.request_id.startswith(f"{call}-"):
                    order.moved(request)
        ranks[f"c{number}"] = (chance.randint(-1, 0), float(chance.randint(0, 3)), number)
        entered = [make(f"c{number}-{part}") for part in range(chance.randint(0, 3))]
        running += entered
        order.appended(entered)
        if chance.random() < 0.7:
            before = {request.request_id for request in running}
            order.restore(running)
            found = [ranks[request.request_id.split("-")[0]] for request in running]
            assert found == sorted(found)
            assert before == {request.request_id for request in running}
            assert len(before) == len(running)
        if running and chance.random() < 0.2:  # prefills are put behind the decodes for a step
            behind = running[:: chance.randint(1, 4)]
            running = [request for request in running if request not in behind] + behind
            order.appended(behind)
