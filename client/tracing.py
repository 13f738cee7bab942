"""The span that the caller is in, where it traces with OpenTelemetry: its calls become part of that trace."""

import sys

from autellix.schemas.trace_context import traceparent


def current() -> str:
    """Return the current span as a `traceparent`; empty where nobody traces. OpenTelemetry is not imported for it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    span = trace.get_current_span().get_span_context()
    return traceparent(span.trace_id, span.span_id, span.trace_flags) if span.is_valid else ""
