"""What the scheduler, in the engine-core process, tells the worker that owns it.

vLLM's own outputs have no room for it and an aborted call has no last output, so it goes over a Unix datagram socket of
the worker's. The scheduler sends a call's report before vLLM sends its last output, so that the report is there when
the worker sees the end. A worker that does not read never holds up a step: the kernel keeps ten datagrams for it, the
scheduler the rest, which it sends when it can; only when the engine falls idle does it wait for that, and not for long.
"""

import contextlib
import select
import socket
from collections import deque
from itertools import islice
from pathlib import Path

import msgspec

from autellix.engine.executor import Load, Turn
from autellix.schemas.ids import CallId


class Ended(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """A call left the scheduler, answered or aborted."""

    call_id: CallId
    service_ms: float
    wait_ms: float
    held_ms: float
    preemptions: int
    queues: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class Busy(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """How busy the engine is."""

    load: Load


Report = Turn | Ended | Busy

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[list[Report]] = msgspec.msgpack.Decoder(list[Report])
_DATAGRAM_MAX = 65_536
_REPORTS_MAX = 64
"""In one datagram; a report has less than a kilobyte."""
_KEPT_MAX = 100_000
"""Reports that could not be sent yet; the oldest go first."""


class ReportSender:
    """The scheduler's end: what is noted during a step goes out in one datagram."""

    def __init__(self, address: str | None) -> None:
        self._socket: socket.socket | None = None
        self._noted: deque[Report] = deque(maxlen=_KEPT_MAX)
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._socket.connect(address)

    def note(self, report: Report) -> None:
        """Keep a report for the next sending."""
        if self._socket:
            self._noted.append(report)

    def send(self, *, patience_ms: int = 0) -> None:
        """Send what was noted; what the worker cannot take within `patience_ms` is kept for the next sending."""
        while self._socket and self._noted:
            reports = list(islice(self._noted, _REPORTS_MAX))
            try:
                self._socket.send(_ENCODER.encode(reports))
            except BlockingIOError:
                if not (patience_ms and self._writable(patience_ms)):
                    return
                continue
            except OSError:  # the worker is gone, and with it whoever would read
                self._noted.clear()
                return
            for _ in reports:
                self._noted.popleft()

    def close(self) -> None:
        """Close the socket; what is noted later goes nowhere."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def _writable(self, patience_ms: int) -> bool:
        poll = select.poll()
        poll.register(self._socket or -1, select.POLLOUT)
        return bool(poll.poll(patience_ms))


class ReportReceiver:
    """The worker's end: a socket at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        self._socket.bind(str(path))

    def fileno(self) -> int:
        """Return the descriptor, for an event loop to watch."""
        return self._socket.fileno()

    def receive(self) -> list[Report]:
        """Return every report that has come."""
        reports: list[Report] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                reports += _DECODER.decode(self._socket.recv(_DATAGRAM_MAX))
        return reports

    def close(self) -> None:
        """Close the socket and remove its path."""
        self._socket.close()
        self.path.unlink(missing_ok=True)
