"""What Prometheus sees of the events on a real bus."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from autellix.schemas import subjects
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId, ThreadId
from autellix.schemas.messages import (
    CallCancelled,
    CallFinished,
    CallSubmitted,
    EngineLoad,
    EngineSeries,
    Event,
    GetMetrics,
    MetricsText,
    ProgramEnded,
    ProgramStarted,
)
from autellix.services.config import MetricsSettings
from autellix.services.metrics.app import metrics
from autellix.services.nats_bus import NatsBus, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from autellix.services.bus import Delivery

LOAD = EngineLoad(
    engine_id=EngineId("e0"),
    incarnation=Incarnation("i1"),
    models=("tiny",),
    policy="atlas",
    state="ready",
    slots=4,
    calls=2,
    running=3,
    waiting=2,
    kv_usage=0.5,
    steps=7,
    programs_resident=5,
    programs_held=2,
    held_tokens=6000,
    pool_ms=1500.0,
    expected_wait_ms=250.0,
    at_ms=0.0,
)


class Scraped:
    """A metrics service, and a bus to publish events on."""

    def __init__(self, bus: NatsBus, http: httpx.AsyncClient) -> None:
        self.bus = bus
        self.http = http

    async def publish(self, *events: Event) -> None:
        """Let things happen."""
        for event in events:
            await self.bus.publish(subjects.event(event), encode(event))

    async def scrape(self) -> dict[str, float]:
        """Return every sample by its name and label values."""
        text = (await self.http.get("/metrics")).text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}

    async def scrape_until(self, name: str, value: float) -> dict[str, float]:
        """Scrape until a sample has come to `value`, and return all."""
        while (found := await self.scrape()).get(name) != value:
            pass
        return found


@pytest.fixture
async def scraped(nats_url: str) -> AsyncIterator[Scraped]:
    """Yield a running metrics service."""
    own, other = await connect(nats_url, name="metrics"), await connect(nats_url, name="test")
    async with metrics(own, MetricsSettings(port=0), silence_s=5) as server, httpx.AsyncClient() as http:
        http.base_url = f"http://127.0.0.1:{server.port}"
        yield Scraped(other, http)
    await own.close()
    await other.close()


def submitted(call_id: str) -> CallSubmitted:
    """Return the begin of a call."""
    return CallSubmitted(
        call_id=CallId(call_id),
        program_id=ProgramId("p"),
        thread_id=ThreadId("main"),
        at_ms=1000.0,
        api="/v1/completions",
        model=f"model-of-{call_id}",
    )


def finished(call_id: str) -> CallFinished:
    """Return the end of a call that took 2 s, of which 0.5 s were service."""
    return CallFinished(
        call_id=CallId(call_id),
        program_id=ProgramId("p"),
        thread_id=ThreadId("main"),
        at_ms=3000.0,
        arrival_at_ms=1000.0,
        engine_id=EngineId("e0"),
        service_ms=500.0,
        prompt_tokens=10,
    )


async def test_a_program(scraped: Scraped) -> None:
    """A program with a call shows in every number it should, and leaves nothing in flight."""
    await scraped.publish(ProgramStarted(program_id=ProgramId("p"), at_ms=0.0), submitted("a"), submitted("b"))
    during = await scraped.scrape_until("autellix_calls_submitted_total", 2)
    cancelled = CallCancelled(
        call_id=CallId("b"), program_id=ProgramId("p"), thread_id=ThreadId("main"), at_ms=2.0, arrival_at_ms=1.0
    )
    await scraped.publish(finished("a"), cancelled, ProgramEnded(program_id=ProgramId("p"), at_ms=9000.0))
    after = await scraped.scrape_until("autellix_programs_live", 0)

    assert (during["autellix_calls_in_flight"], during["autellix_programs_live"]) == (2, 1)
    expected = {
        "autellix_calls_in_flight": 0,
        "autellix_calls_finished_total e0": 1,
        "autellix_calls_cancelled_total none": 1,
        "autellix_prompt_tokens_total e0": 10,
        "autellix_call_service_seconds_bucket e0 0.25": 0,
        "autellix_call_service_seconds_bucket e0 0.5": 1,
        "autellix_call_service_seconds_count e0": 1,
        "autellix_call_service_seconds_sum e0": 0.5,
        "autellix_call_duration_seconds_sum e0": 2,
        "autellix_programs_ended_total": 1,
        "autellix_program_duration_seconds_sum ended": 9,
    }
    assert expected == {name: after[name] for name in expected}


async def test_an_engine(scraped: Scraped) -> None:
    """A heartbeat shows the engine's load, its policy and how old the report is."""
    await scraped.publish(LOAD)
    found = await scraped.scrape_until("autellix_engines_up", 1)

    expected = {
        "autellix_engine_running_calls e0": 3,
        "autellix_engine_waiting_calls e0": 2,
        "autellix_engine_kv_usage_ratio e0": 0.5,
        "autellix_engine_resident_programs e0": 5,
        "autellix_engine_held_programs e0": 2,
        "autellix_engine_held_tokens e0": 6000,
        "autellix_engine_pool_seconds e0": 1.5,
        "autellix_engine_expected_hold_seconds e0": 0.25,
        "autellix_engine_steps_total e0": 7,
        "autellix_engine_info e0 atlas": 1,
    }
    assert expected == {name: found[name] for name in expected}
    assert 0 <= found["autellix_engine_report_age_seconds e0"] < 5


SERIES = """# HELP vllm:tokens_total Tokens.
# TYPE vllm:tokens_total counter
vllm:tokens_total{model_name="tiny",engine="0"} %d.0
"""


async def test_series_of_engines(scraped: Scraped) -> None:
    """What engines count themselves is shown with their ids, each family once; one that is silent is left out."""

    async def on_asked(delivery: Delivery) -> None:
        engine_id = EngineId(delivery.subject.split(".")[3])
        told = EngineSeries(engine_id=engine_id, text=SERIES % int(engine_id[1:]))
        await scraped.bus.publish(delivery.reply, encode(told))

    for name in ("e3", "e4"):
        await scraped.bus.subscribe(subjects.engine_series(EngineId(name)), on_asked)
    await scraped.publish(*(msgspec.structs.replace(LOAD, engine_id=EngineId(name)) for name in ("e3", "e4", "e5")))
    await scraped.scrape_until("autellix_engines_up", 3)
    found: list[str] = []
    async with asyncio.timeout(10):
        while len(found) < 4:  # what was asked a moment before the engines were known is shown for a second
            text = (await scraped.http.get("/metrics")).text
            found = [line for line in text.splitlines() if "vllm:tokens" in line]

    assert found == [
        "# HELP vllm:tokens_total Tokens.",
        "# TYPE vllm:tokens_total counter",
        'vllm:tokens_total{engine="e3",engine_index="0",model_name="tiny"} 3.0',
        'vllm:tokens_total{engine="e4",engine_index="0",model_name="tiny"} 4.0',
    ]


async def test_asked_over_the_bus(scraped: Scraped) -> None:
    """Who has no way to this port asks over the bus, as the gateway does."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def on_answer(delivery: Delivery) -> None:
        answered.set_result(delivery.data)

    await scraped.bus.subscribe("my.inbox", on_answer)
    await scraped.bus.publish(subjects.METRICS_GET, encode(GetMetrics()), reply="my.inbox")
    answer = Decoder[MetricsText](MetricsText).decode(await answered)

    assert "autellix_engines_up 0.0" in answer.text


async def test_answers_where_services_talk(scraped: Scraped) -> None:
    """Who asks for the answer on a subject of services does not get it there."""
    heard: list[Delivery] = []

    async def hear(delivery: Delivery) -> None:
        heard.append(delivery)

    await scraped.bus.subscribe("autellix.internal.x", hear)
    await scraped.bus.publish(subjects.METRICS_GET, encode(GetMetrics()), reply="autellix.internal.x")
    await test_asked_over_the_bus(scraped)

    assert [] == heard


async def test_names_of_clients_are_no_labels(scraped: Scraped) -> None:
    """Thousands of calls, programs and models add no line."""
    await scraped.publish(submitted("first"), finished("first"))
    before = await scraped.scrape_until("autellix_calls_finished_total e0", 1)
    for number in range(2000):
        await scraped.publish(submitted(f"c{number}"), finished(f"c{number}"))
    after = await scraped.scrape_until("autellix_calls_finished_total e0", 2001)

    assert sorted(after) == sorted(before)


async def test_openmetrics(scraped: Scraped) -> None:
    """A scraper that asks for OpenMetrics gets it."""
    answer = await scraped.http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_health(scraped: Scraped) -> None:
    """The service lives, and is ready while it hears the bus."""
    answers = [await scraped.http.get(path) for path in ("/health", "/ready", "/healthz", "/readyz")]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 200]
