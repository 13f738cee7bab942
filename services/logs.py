"""Logs: one JSON object a line on stdout, or a readable form on a terminal.

Values from outside are cut and, being JSON, escaped: no text of a request can forge or break a line.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

MAX_VALUE = 500
MAX_TRACEBACK = 20_000


def _cut(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Bound every text value of a line."""
    for key, value in event.items():
        limit = MAX_TRACEBACK if key == "exception" else MAX_VALUE
        if isinstance(value, str) and len(value) > limit:
            event[key] = value[:limit] + "…"
    return event


def setup(service: str, level: str = "info") -> None:
    """Send structlog's and the standard library's records to stdout, each line bound to `service`."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _cut,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stdout.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    foreign = logging.StreamHandler(sys.stdout)
    foreign.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processor=renderer))
    logging.basicConfig(handlers=[foreign], level=logging.WARNING, force=True)
    structlog.contextvars.bind_contextvars(service=service)
