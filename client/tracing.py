"""The span that the caller is in, where it traces with OpenTelemetry: its calls become part of that trace."""

import sys
from typing import Final

HEADER: Final = "traceparent"
"""W3C Trace Context, section 3.2."""


def current() -> str:
    """Return the current span as a `traceparent`; empty where nobody traces. OpenTelemetry is not imported for it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    span = trace.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else ""
