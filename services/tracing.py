"""OpenTelemetry spans of calls, where OpenTelemetry's own variables name a collector; else nothing, at no cost.

`OTEL_EXPORTER_OTLP_ENDPOINT`, or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, switches it on; whatever else the SDK reads
(headers, sampler, resource attributes, protocol) is as OpenTelemetry defines it. Whether it is on or not, the context
of a trace travels with a call as the W3C header `traceparent`: over HTTP, on every NATS message that hands the call on,
and into vLLM, whose own spans join when it is on.

Names are of OpenTelemetry's conventions for generative AI; a program is the conversation, `gen_ai.conversation.id`.
"""

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from autellix.engine.executor import Account
from autellix.schemas.events import CallEnded
from autellix.schemas.trace_context import HEADER, traceparent
from autellix.services.config import StartError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

log = structlog.get_logger()

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

CLOSE_S: Final = 3.0

OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
}
"""`gen_ai.operation.name` of the APIs that generate."""

Attributes = Mapping[str, str | int | float | bool]


class Span:
    """What is timed. This one only carries the context on: nothing is traced."""

    def __init__(self, context: str = "") -> None:
        self.context = context
        """What its children name as their parent, as `traceparent`; empty: nobody traces."""

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Note that something happened meanwhile."""

    def end(self, attributes: Attributes, *, error: str = "") -> None:
        """Say that it is over, what is known by now, and what went wrong, if anything."""


class RecordedSpan(Span):
    """A span that goes to the collector."""

    def __init__(self, span: "OtelSpan") -> None:
        context = span.get_span_context()
        super().__init__(traceparent(context.trace_id, context.span_id, context.trace_flags))
        self._span = span

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Note that something happened meanwhile."""
        self._span.add_event(name, attributes)

    def end(self, attributes: Attributes, *, error: str = "") -> None:
        """Say that it is over, what is known by now, and what went wrong, if anything."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attributes(attributes)
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class _Tracing:
    """The one tracer of this process, None where nothing is traced."""

    tracer: "Tracer | None" = None
    provider: "TracerProvider | None" = None


def enabled() -> bool:
    """Tell whether OpenTelemetry's variables name a collector and do not switch it off."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(os.environ.get(name) for name in ENDPOINTS)


def protocol() -> str:
    """Return how spans are sent: `http/protobuf`, OpenTelemetry's default, or `grpc`."""
    return next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), "http/protobuf")


def endpoint() -> str:
    """Return where spans are sent; empty if they are not (OTLP Exporter, "Endpoint URLs for OTLP/HTTP")."""
    if not enabled():
        return ""
    exact, base = (os.environ.get(name, "") for name in ENDPOINTS)
    path = "/v1/traces" if protocol() == "http/protobuf" else ""
    return exact or base.rstrip("/") + path


def setup(service: str) -> None:
    """Begin to send the spans of this process, if that is wanted.

    Args:
        service: The process's name.

    Raises:
        StartError: when it is wanted and cannot be done: the packages are missing, or the protocol is none of them.
    """
    if not enabled():
        return
    os.environ[PROTOCOLS[0]] = protocol()  # vLLM knows no other, and has another default than OpenTelemetry
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _exporter()
    except ImportError as error:
        raise StartError(f"spans are to be sent, and OpenTelemetry is not installed: {error}") from error
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"autellix-{service}"}
    resource = Resource.create({"service.namespace": "autellix", **named})
    _Tracing.provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # see `close`
    _Tracing.provider.add_span_processor(BatchSpanProcessor(exporter))
    _Tracing.tracer = _Tracing.provider.get_tracer("autellix")
    log.info("tracing", endpoint=endpoint(), protocol=protocol())


def _exporter() -> Any:
    match protocol():
        case "http/protobuf":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

            return HttpExporter()
        case "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

            return GrpcExporter()
        case other:
            raise StartError(f"{PROTOCOLS[1]} must be 'http/protobuf' or 'grpc', not {other[:80]!r}")


def close() -> None:
    """Send what was not sent yet, unless that takes long: the collector may be away, and the SDK would wait for it."""
    if _Tracing.provider:
        sending = threading.Thread(target=_Tracing.provider.shutdown, daemon=True)
        sending.start()
        sending.join(CLOSE_S)
        _Tracing.provider = _Tracing.tracer = None


def span(name: str, parent: str, attributes: Attributes | None = None, *, server: bool = False) -> Span:
    """Begin a span below `parent`, a `traceparent`; empty: a trace of its own."""
    if _Tracing.tracer is None:
        return Span(parent)
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({HEADER: parent} if parent else {})
    kind = SpanKind.SERVER if server else SpanKind.INTERNAL
    return RecordedSpan(_Tracing.tracer.start_span(name, context=context, kind=kind, attributes=attributes))


def asked(api: str, model: str) -> tuple[str, Attributes]:
    """Return the name of the span of a call, and what it is about."""
    operation = OPERATIONS.get(api)
    named: dict[str, str] = {"url.path": api}
    if operation:
        named |= {"gen_ai.operation.name": operation, "gen_ai.provider.name": "autellix"}
    if model:
        named["gen_ai.request.model"] = model
    return f"{operation or api} {model}".rstrip(), named


def used(call: CallEnded | Account) -> dict[str, str | int | float | bool]:
    """Return what an ended call took, as attributes of its span."""
    return {
        "gen_ai.usage.input_tokens": call.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
        "gen_ai.usage.output_tokens": call.output_tokens,
        "autellix.service_ms": call.service_ms,
        "autellix.wait_ms": call.wait_ms,
        "autellix.held_ms": call.held_ms,
        "autellix.preemptions": call.preemptions,
    }
