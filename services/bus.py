"""What services need of a message bus. `nats_bus` is the real one, `memory_bus` the one for tests and simulation."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol


class Delivery(NamedTuple):
    """One message as it arrived."""

    subject: str
    data: bytes
    reply: str
    trace: str = ""
    """The W3C `traceparent` that came with it; empty: none."""


Handler = Callable[[Delivery], Awaitable[None]]


def matches(pattern: str, subject: str) -> bool:
    """Tell whether `subject` is one that a subscription to `pattern` receives."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(found) >= len(wanted) and all(w in ("*", f) for w, f in zip(wanted[:-1], found, strict=False))
    return len(wanted) == len(found) and all(w in ("*", f) for w, f in zip(wanted, found, strict=True))


class BusDownError(ConnectionError):
    """The bus cannot be reached, or was closed."""


class PayloadTooLargeError(ValueError):
    """The message is larger than the bus carries."""


class Subscription(Protocol):
    """An interest in a subject that can be given up."""

    async def unsubscribe(self) -> None:
        """Stop receiving; what has arrived is still handled."""
        ...


class Bus(Protocol):
    """Publish and subscribe, at most once, in order from one publisher on one subject.

    Subjects are tokens joined by dots; `*` stands for one token and a last `>` for one or more. Among the subscribers
    that share a queue group, each message reaches one.
    """

    @property
    def max_payload(self) -> int:
        """Bytes that one message may hold."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the bus can be reached now."""
        ...

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and came back; what was sent to us in between is gone."""
        ...

    async def publish(self, subject: str, data: bytes, *, reply: str = "", trace: str = "") -> None:
        """Send `data` to whoever is subscribed, with the `traceparent` of what it is part of, if that is known.

        Raises:
            PayloadTooLargeError: when `data` is larger than `max_payload`; nothing is sent.
            BusDownError: when the bus is closed.
            ValueError: when `subject` is none.
        """
        ...

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Call `handler` for each message on `subject`, one after the other, in order of arrival."""
        ...

    def new_inbox(self) -> str:
        """Return a subject that nobody else uses."""
        ...

    async def flush(self) -> None:
        """Return when the bus has taken in all that was published and subscribed before."""
        ...

    async def close(self) -> None:
        """Handle what has arrived, send what was published, and disconnect; closing twice is harmless."""
        ...
