"""What the worker tells the scheduler, in the engine-core process, that belongs to no call.

It goes over a Unix datagram socket of the scheduler's, which reads it before each step; an idle engine reads nothing.
The worker never waits for it: what the kernel has no room for is kept, of priorities the newest only, and goes out with
the next notice or heartbeat.
"""

import contextlib
import socket
from itertools import islice

import msgspec

from autellix.engine.executor import Notice, ProgramOver

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[list[Notice]] = msgspec.msgpack.Decoder(list[Notice])
_DATAGRAM_MAX = 2**18
_NOTICES_MAX = 256
"""In one datagram; beside priorities, which may have 150 kB, each has less than a hundred bytes."""
_KEPT_MAX = 10_000
"""Notices that could not be sent yet; the oldest go first."""


class NoticeSender:
    """The worker's end; the scheduler's must be there."""

    def __init__(self, address: str) -> None:
        self._kept: dict[str, Notice] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
        self._socket.connect(address)

    def tell(self, notice: Notice) -> None:
        """Send a notice, now or when there is room."""
        about = notice.program_id if isinstance(notice, ProgramOver) else "priorities"
        self._kept.pop(about, None)
        self._kept[about] = notice
        if len(self._kept) > _KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self.send()

    def send(self) -> None:
        """Send what was kept, as far as there is room."""
        while self._kept:
            notices = dict(islice(self._kept.items(), _NOTICES_MAX))
            try:
                self._socket.send(_ENCODER.encode([*notices.values()]))
            except BlockingIOError:
                return
            except OSError:  # the scheduler is gone, and with it whoever would read
                self._kept.clear()
                return
            for about in notices:
                del self._kept[about]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class NoticeReceiver:
    """The scheduler's end: a socket at `address`; without one nothing ever comes."""

    def __init__(self, address: str | None) -> None:
        self._socket: socket.socket | None = None
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._socket.bind(address)

    def receive(self) -> list[Notice]:
        """Return every notice that has come."""
        notices: list[Notice] = []
        with contextlib.suppress(BlockingIOError):
            while self._socket:
                notices += _DECODER.decode(self._socket.recv(_DATAGRAM_MAX))
        return notices

    def close(self) -> None:
        """Close the socket; nothing comes any more."""
        if self._socket:
            self._socket.close()
            self._socket = None
