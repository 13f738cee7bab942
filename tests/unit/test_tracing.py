"""Whether and where spans are sent, and what carries a trace on."""

from collections.abc import Callable

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from autellix.client import tracing as client_tracing
from autellix.schemas.trace_context import BYTES_MAX, HEADER, context_of, with_context
from autellix.services import tracing
from autellix.services.config import EngineWorkerSettings, StartError
from autellix.services.engine_worker.engines import NO_STATS, vllm_arguments

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BASE, EXACT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"

Set = Callable[..., None]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Return what sets the environment; nothing of OpenTelemetry's is set before."""
    for name in (*tracing.ENDPOINTS, *tracing.PROTOCOLS, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"):
        monkeypatch.setenv(name, "")

    def set_all(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    ("values", "endpoint"),
    [
        ({}, ""),
        ({BASE: ""}, ""),
        ({BASE: "http://c:4318"}, "http://c:4318/v1/traces"),
        ({BASE: "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({EXACT: "http://c:4318/spans"}, "http://c:4318/spans"),
        ({BASE: "http://c:4318", EXACT: "http://d/x"}, "http://d/x"),
        ({BASE: "http://c:4317", PROTOCOL: "grpc"}, "http://c:4317"),
        ({BASE: "http://c:4318", "OTEL_SDK_DISABLED": "true"}, ""),
        ({BASE: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ""),
    ],
)
def test_endpoint(variables: Set, values: dict[str, str], endpoint: str) -> None:
    """OpenTelemetry's own variables say whether spans are sent, and where."""
    variables(**values)

    assert tracing.endpoint() == endpoint
    assert tracing.enabled() is bool(endpoint)


def test_unknown_protocol(variables: Set) -> None:
    """A protocol that nobody speaks keeps a service from starting, and the text says which there are."""
    variables(**{BASE: "http://c", PROTOCOL: "http/json"})

    with pytest.raises(StartError, match="'http/protobuf' or 'grpc', not 'http/json'"):
        tracing.setup("gateway")


def test_off(variables: Set) -> None:
    """Where nothing is sent a span only carries on what it was given."""
    variables()
    tracing.setup("gateway")
    span = tracing.span("chat", TRACE)
    span.event("x")
    span.end({"a": 1}, error="b")

    assert span.context == TRACE
    assert tracing.span("chat", "").context == ""


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (TRACE, TRACE),
        ("", ""),
        (TRACE.upper(), ""),
        (TRACE + "-more", ""),
        (TRACE.replace("00-", "ff-", 1), ""),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", ""),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", ""),
    ],
)
def test_context_from_outside(text: str, context: str) -> None:
    """Only what W3C defines is carried on, in whatever case its name comes."""
    assert context_of({"other": "x", HEADER: text}) == context_of({"Traceparent": text}) == context
    assert context_of(None) == context_of({}) == ""


def test_header_that_does_not_fit() -> None:
    """Where a message is about as large as the bus carries it goes without."""
    assert with_context(TRACE, 1000, 1000 + BYTES_MAX) == {HEADER: TRACE}
    assert with_context(TRACE, 1001, 1000 + BYTES_MAX) is None
    assert with_context("", 0, 1000) is None


def test_context_of_a_caller() -> None:
    """The client library finds the span that its caller is in, if there is one."""
    trace_id, span_id = (int(part, 16) for part in TRACE.split("-")[1:3])
    context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))
    outside = client_tracing.current()
    with trace.use_span(NonRecordingSpan(context)):
        inside = client_tracing.current()

    assert (outside, inside) == ("", TRACE)


@pytest.mark.parametrize(
    ("api", "model", "name"),
    [
        ("/v1/chat/completions", "m", "chat m"),
        ("/v1/completions", "m", "text_completion m"),
        ("/v1/messages", "", "chat"),
        ("/tokenize", "m", "/tokenize m"),
    ],
)
def test_names(api: str, model: str, name: str) -> None:
    """Spans of calls are named by what is done and with which model, as OpenTelemetry has it."""
    assert tracing.asked(api, model)[0] == name


def test_engine_joins(variables: Set) -> None:
    """The engine sends its spans to the same place, unless vLLM keeps no statistics to make them of."""
    without = vllm_arguments(EngineWorkerSettings(), "x")
    variables(**{BASE: "http://c:4318"})
    traced = vllm_arguments(EngineWorkerSettings(), "x")
    silent = vllm_arguments(EngineWorkerSettings(vllm_args=[NO_STATS]), "x")

    assert "--otlp-traces-endpoint" not in without
    assert traced[traced.index("--otlp-traces-endpoint") + 1] == "http://c:4318/v1/traces"
    assert "--otlp-traces-endpoint" not in silent
