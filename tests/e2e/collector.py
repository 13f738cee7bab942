"""An OpenTelemetry collector that keeps what it is sent (OTLP over HTTP)."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    """One span as it was sent."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    events: list[str]


class Collector(ThreadingHTTPServer):
    """Listens on a free port."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Span] = []

    @property
    def url(self) -> str:
        """What `OTEL_EXPORTER_OTLP_ENDPOINT` is set to."""
        return f"http://127.0.0.1:{self.server_port}"

    async def trace(self, trace_id: str, *, until: set[str]) -> list[Span]:
        """Return the spans of a trace, once there is one of each name in `until`."""
        async with asyncio.timeout(30):
            while True:
                found = [span for span in self.spans if span.trace_id == trace_id]
                if until <= {span.name for span in found}:
                    return found
                await asyncio.sleep(0.05)


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        """Take in a batch of spans."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _values(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.server.spans += [_span(service, span) for span in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _span(service: str, span: Any) -> Span:
    return Span(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        events=[event.name for event in span.events],
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Yield a collector that listens."""
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            collector.shutdown()
