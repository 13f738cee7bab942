"""Which trace a call is part of: the header `traceparent` (W3C Trace Context, section 3.2), over HTTP and NATS."""

import re
from collections.abc import Mapping
from typing import Final

HEADER: Final = "traceparent"
BYTES_MAX: Final = 128
"""What a message with the header takes beside its data: two lines."""

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def traceparent(trace_id: int, span_id: int, flags: int) -> str:
    """Return what names a span."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"


def context_of(headers: Mapping[str, str] | None) -> str:
    """Return the span that headers name, in whatever case; empty if they name none."""
    named = (value for name, value in (headers or {}).items() if name.lower() == HEADER)
    text = next(named, "")
    return text if _TRACEPARENT.fullmatch(text) else ""


def with_context(trace: str, size: int, size_max: int) -> dict[str, str] | None:
    """Return the headers of a message of `size` bytes: none, where they would make it larger than the bus carries.

    The client of NATS does not count them, and the server ends the connection for them.
    """
    return {HEADER: trace} if trace and size + BYTES_MAX <= size_max else None
