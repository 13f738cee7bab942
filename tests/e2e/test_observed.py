"""What operators see of a call from outside: one trace from the gateway into vLLM, and vLLM's own series."""

import secrets

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from prometheus_client.parser import text_string_to_metric_families

from autellix.client import Program
from autellix.client.stack import Stack
from tests.e2e.collector import Collector

pytestmark = pytest.mark.vllm

TURNS = [{"role": "user", "content": "Hi"}]
BODY = {"model": "tiny", "messages": TURNS, "max_tokens": 4}
HOPS = {
    "autellix-session-manager": "process autellix.calls.submit",
    "autellix-process-table": "process autellix.internal.calls.submitted",
    "autellix-load-balancer": "process autellix.internal.calls.admitted",
    "autellix-engine-worker": "engine chat tiny",
}


async def test_a_call_is_one_trace(http: httpx.AsyncClient, collector: Collector) -> None:
    """The client's span is the gateway's parent, that one the parent of every hop's, and the engine's of vLLM's."""
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    told = {"traceparent": f"00-{trace_id}-{span_id}-01"}
    answer = await http.post("/v1/chat/completions", json=BODY, headers=told)
    spans = await collector.trace(trace_id, until={"chat tiny", "llm_request", *HOPS.values()})

    (gateway,) = [span for span in spans if span.name == "chat tiny"]
    (engine,) = [span for span in spans if span.name == "engine chat tiny"]
    (vllm,) = [span for span in spans if span.name == "llm_request"]
    hops = {span.service: span.name for span in spans if span.parent_id == gateway.span_id}
    assert (gateway.service, gateway.parent_id) == ("autellix-gateway", span_id)
    assert hops == HOPS
    assert vllm.parent_id == engine.span_id
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "autellix",
        "gen_ai.request.model": "tiny",
        "gen_ai.conversation.id": answer.headers["X-Autellix-Program-Id"],
        "gen_ai.usage.output_tokens": 4,
        "autellix.call.id": answer.headers["X-Autellix-Call-Id"],
    }
    for span in (gateway, engine):
        assert expected == {name: span.attributes.get(name) for name in expected}
    assert engine.attributes["autellix.engine.id"] == "engine-0"
    assert "call.started" in engine.events


async def test_a_refused_call_is_an_error(http: httpx.AsyncClient, collector: Collector) -> None:
    """The span of a call that fails says so."""
    trace_id = secrets.token_hex(16)
    told = {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"}
    answer = await http.post("/v1/chat/completions", json={**BODY, "model": "lost"}, headers=told)
    spans = await collector.trace(trace_id, until={"chat lost"})

    assert answer.status_code == 404
    assert [span.attributes["error.type"] for span in spans if span.name == "chat lost"] == ["model_not_found"]


async def test_a_program_on_the_bus_is_traced(stack: Stack, collector: Collector) -> None:
    """A call of the client library is part of the span that its caller is in."""
    context = SpanContext(secrets.randbits(128), secrets.randbits(64), is_remote=False, trace_flags=TraceFlags(1))
    async with Program("traced", model="tiny", nats_url=stack.nats_url) as program:
        with trace.use_span(NonRecordingSpan(context)):
            await program.chat(TURNS, max_tokens=4)
    spans = await collector.trace(f"{context.trace_id:032x}", until={"llm_request", *HOPS.values()})

    parents = {span.parent_id for span in spans if span.name in HOPS.values()}
    assert parents == {f"{context.span_id:016x}"}


async def test_series_of_the_engine(http: httpx.AsyncClient) -> None:
    """The gateway shows our metrics and vLLM's, those with the engine's id."""
    await http.post("/v1/chat/completions", json=BODY)
    answer = await http.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}

    generated = families["vllm:generation_tokens"].samples
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert {sample.labels["engine"] for sample in generated} == {"engine-0"}
    assert max(sample.value for sample in generated if sample.name.endswith("_total")) >= 4
    assert families["autellix_engines_up"].samples[0].value == 1
