"""Two gateways, two load balancers and two metrics services at once: each call has one end, and both say the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from autellix.schemas import subjects
from autellix.schemas.codec import encode
from autellix.schemas.messages import (
    CallCancelled,
    CallFailed,
    CallFinished,
    ControlEngine,
    EngineDown,
    EngineList,
    Finished,
    ListEngines,
)
from autellix.services.config import GatewaySettings, LoadBalancerSettings, MetricsSettings
from autellix.services.gateway.app import gateway
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.load_balancer.listens import LISTENS
from autellix.services.metrics.app import metrics
from autellix.services.runner import CoreRunner
from tests.bus.test_moved_calls import FullEngine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.bus.conftest import Connect, Inbox, Pipeline

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
ENDS = (CallFinished, CallFailed, CallCancelled)


class Two:
    """A pipeline with a second load balancer, and clients of two gateways."""

    def __init__(self, pipeline: Pipeline, balancers: list[LoadBalancer]) -> None:
        self.pipeline = pipeline
        self.client = pipeline.client
        self.balancers = balancers
        self.gateways: list[httpx.AsyncClient] = []
        self.metrics: list[str] = []

    async def lists(self) -> list[set[tuple[str, str]]]:
        """Return what is answered to those who ask for the engines, many times: by both balancers."""
        asked: list[EngineList] = [await self.client.ask(subjects.ENGINES_LIST, ListEngines()) for _ in range(12)]
        return [{(load.engine_id, load.state) for load in each.engines} for each in asked]

    async def until_agreed(self, *engines: tuple[str, str]) -> None:
        """Return when both balancers know these engines, in these states."""
        async with asyncio.timeout(10):
            while any(each != set(engines) for each in await self.lists()):
                pass

    async def until_idle(self) -> None:
        """Return when neither balancer has a call."""
        async with asyncio.timeout(10):
            while any(engine.used for each in self.balancers for engine in each._engines.values()):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


async def heard_by(metrics_url: str, wanted: int) -> dict[str, float]:
    """Return the sums of a metrics service's counters by name, once it has heard the end of so many calls."""
    async with httpx.AsyncClient() as http, asyncio.timeout(10):
        while True:
            families = list(text_string_to_metric_families((await http.get(metrics_url)).text))
            counted: Counter[str] = Counter()
            for sample in (sample for family in families for sample in family.samples):
                counted[sample.name] += int(sample.value) if sample.name.endswith("_total") else 0
            if counted["autellix_calls_finished_total"] >= wanted:
                return {name: count for name, count in counted.items() if name.startswith("autellix_calls_")}


@pytest.fixture
async def two(pipeline: Pipeline, connected: Connect) -> AsyncIterator[Two]:
    """Return two of each, without engines."""
    second = LoadBalancer(LoadBalancerSettings(), random.Random(8))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(CoreRunner(await connected(), second, LISTENS, tick_s=0.05))
        two = Two(pipeline, [pipeline.balancer, second])
        for _ in range(2):
            server = await stack.enter_async_context(
                gateway(await connected(), GatewaySettings(port=0, drain_s=1), silence_s=5)
            )
            http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=20)
            two.gateways.append(await stack.enter_async_context(http))
            counting = await stack.enter_async_context(metrics(await connected(), MetricsSettings(port=0), silence_s=5))
            two.metrics.append(f"http://127.0.0.1:{counting.port}/metrics")
        yield two


async def lose(two: Two, engine_id: str) -> None:
    """Have an engine said to be gone; it is there, and would go on."""
    listed: EngineList = await two.client.ask(subjects.ENGINES_LIST, ListEngines())
    (load,) = [each for each in listed.engines if each.engine_id == engine_id]
    down = EngineDown(engine_id=load.engine_id, incarnation=load.incarnation, reason="died", at_ms=0.0)
    await two.client.bus.publish(subjects.event(down), encode(down))


def ends(two: Two) -> Counter[str]:
    """Return how often the end of each call was announced."""
    return Counter(event.call_id for event in two.client.events() if isinstance(event, ENDS))


async def frames(inboxes: list[Inbox]) -> list[list[str]]:
    """Return what kinds of frames each call was answered with."""
    return [[type(frame).__name__ for frame in await inbox.frames()] for inbox in inboxes]


async def test_calls_through_both(two: Two) -> None:
    """Calls of many programs, through either gateway, are answered once, and both metrics services count the same."""
    for name in ("e0", "e1"):
        await two.pipeline.start_engine(name)
    await two.until_agreed(("e0", "ready"), ("e1", "ready"))

    async def ask(number: int) -> httpx.Response:
        headers = {"X-Session-ID": f"s{number % 7}"}
        return await two.gateways[number % 2].post("/v1/chat/completions", json=BODY, headers=headers)

    answers = await asyncio.gather(*(ask(number) for number in range(40)))
    programs = {each.headers["X-Autellix-Program-Id"] for each in answers}
    counted = [await heard_by(url, 40) for url in two.metrics]
    await two.until_idle()

    assert {each.status_code for each in answers} == {200}
    assert len(programs) == 7  # a session is one program, whichever gateway it comes through
    assert sorted(ends(two).values()) == [1] * 40
    assert counted[0] == counted[1]
    assert counted[0]["autellix_calls_submitted_total"] == 40
    assert all(balancer._engines for balancer in two.balancers)


async def test_lost_engine(two: Two) -> None:
    """Each balancer repeats what it had sent to a lost engine; every call is answered once and ends once."""
    for name in ("e0", "e1"):
        await two.pipeline.start_engine(name, step_ms=5.0)
    await two.until_agreed(("e0", "ready"), ("e1", "ready"))
    inboxes = [await two.client.submit({"max_tokens": 60}) for _ in range(8)]
    for _ in range(8):
        await two.client.heard.event("call.started")
    shares = [sum(len(engine.calls) for engine in balancer._engines.values()) for balancer in two.balancers]
    await lose(two, "e0")
    answered = await frames(inboxes)
    await two.until_idle()

    assert sum(shares) == 8
    assert answered == [["Accepted", "Finished"]] * 8
    assert sorted(ends(two).values()) == [1] * 8
    assert [inbox.arrived() for inbox in inboxes] == [[]] * 8


async def test_moved_call(two: Two, connected: Connect) -> None:
    """A call that an engine gives back runs elsewhere, whichever balancer hears of it, and its first one lets it go.

    So when the first engine is lost then, while they run, none of them is repeated.
    """
    await two.pipeline.start_engine("e0", engine=FullEngine)
    await two.until_agreed(("e0", "ready"))
    inboxes = [await two.client.submit({"max_tokens": 60}) for _ in range(8)]
    for _ in range(8):
        await two.client.heard.event("call.held")
    await two.pipeline.start_engine("e1", step_ms=20.0)
    for _ in range(8):
        await two.client.heard.event("call.started")
    await two.pipeline.start_engine("e2")
    await lose(two, "e0")
    answered = await frames(inboxes)
    await two.until_idle()
    events = two.client.events()

    assert answered == [["Accepted", "Finished"]] * 8
    assert {event.engine_id for event in events if isinstance(event, CallFinished)} == {"e1"}
    assert sum(isinstance(event, ENDS) for event in events) == 8
    assert [inbox.arrived() for inbox in inboxes] == [[]] * 8
    assert [type(event) for event in events if isinstance(event, CallFailed | CallCancelled)] == []


async def test_drained_engine(two: Two) -> None:
    """Both balancers take an engine that drains out at once: what is new goes to the other one; resumed, it is back."""
    await two.pipeline.start_engine("e0", step_ms=5.0)
    await two.until_agreed(("e0", "ready"))
    running = [await two.client.submit({"max_tokens": 60}) for _ in range(2)]
    for _ in range(2):
        await two.client.heard.event("call.started")
    await two.pipeline.start_engine("e1")
    await two.until_agreed(("e0", "ready"), ("e1", "ready"))
    drained: Any = await two.client.ask("autellix.engines.e0.control", ControlEngine(action="drain"))
    later = [await two.client.submit() for _ in range(6)]
    answered = await frames([*running, *later])
    resumed: Any = await two.client.ask("autellix.engines.e0.control", ControlEngine(action="resume"))
    await two.until_agreed(("e0", "ready"), ("e1", "ready"))
    ran_on = Counter(event.engine_id for event in two.client.events() if isinstance(event, CallFinished))

    assert (drained.state, drained.calls, resumed.state) == ("draining", 2, "ready")
    assert answered == [["Accepted", "Finished"]] * 8
    assert ran_on == {"e0": 2, "e1": 6}


async def test_last_words_of_a_gateway(two: Two) -> None:
    """A call through one gateway is none of the other's: each hears the frames of its own calls only."""
    await two.pipeline.start_engine("e0", step_ms=2.0)
    await two.until_agreed(("e0", "ready"))
    streams = [each.post("/v1/chat/completions", json={**BODY, "stream": True}) for each in two.gateways]
    texts = [answer.text for answer in await asyncio.gather(*streams)]

    assert [text.count("data: [DONE]") for text in texts] == [1, 1]
    assert isinstance((await (await two.client.submit()).frames())[-1], Finished)
