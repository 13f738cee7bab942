"""The bus in virtual time: subjects, wildcards and queue groups as on NATS, without tasks, threads or delay.

Rules:
* Messages arrive in the order in which they were published, each at all of its receivers before the next one.
* They are handed over as they are. With `coded` each is encoded and decoded as on the real bus, for the test that this
  changes nothing.
"""

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from autellix.schemas.codec import Decoder, encode
from autellix.services.bus import matches
from autellix.services.core import Core, Listen, Out, Reply
from autellix.services.simulator.clock import Clock

SUBJECTS_REMEMBERED = 4096
"""Subjects whose route is found once; the rest is inboxes, in use for a short time."""


WILDCARDS = frozenset("*>")


class Envelope(NamedTuple):
    """One message as it arrives."""

    subject: str
    message: Any
    reply: str


Handler = Callable[[Envelope], None]


class Receiver(NamedTuple):
    """One subscription."""

    pattern: str
    decoder: Decoder[Any]
    queue: str
    handler: Handler


class Route(NamedTuple):
    """Who receives the messages of one subject."""

    every: list[Receiver]
    groups: list[list[Receiver]]
    """Of each of these lists one member receives it."""


class VirtualBus:
    """Carries messages between everybody in the simulation."""

    def __init__(self, clock: Clock, *, coded: bool = False) -> None:
        self._clock = clock
        self._coded = coded
        self._under_way: deque[Envelope] = deque()
        self._literal: dict[str, list[Receiver]] = defaultdict(list)
        self._wildcard: list[Receiver] = []
        self._turns = itertools.count()
        self._route_of = lru_cache(SUBJECTS_REMEMBERED)(self._find_route)

    def subscribe(self, subject: str, decoder: Decoder[Any], handler: Handler, *, queue: str = "") -> None:
        """Call `handler` for each message on `subject`; of the members of a queue group one is called, in turn."""
        receivers = self._wildcard if WILDCARDS & {*subject.split(".")} else self._literal[subject]
        receivers.append(Receiver(subject, decoder, queue, handler))
        self._route_of.cache_clear()

    def hang(self, core: Core, listens: Iterable[Listen]) -> None:
        """Subscribe a service's core to what the service listens to."""
        for listen in listens:
            self.subscribe(listen.subject, listen.decoder, self._handler(core), queue=listen.queue)

    def publish(self, subject: str, message: Any, *, reply: str = "") -> None:
        """Send a message on its way; `deliver` brings it there."""
        self._under_way.append(Envelope(subject, message, reply))

    def say(self, outs: Iterable[Out]) -> None:
        """Send what a core decided, in order."""
        for out in outs:
            self.publish(out.subject, out.message)

    def deliver(self) -> None:
        """Bring every message to its receivers, and what these send in turn, until nothing is under way."""
        while self._under_way:
            self._carry(self._under_way.popleft())

    def _carry(self, envelope: Envelope) -> None:
        """Bring one message to its receivers. A bus that loses, delays or repeats messages differs here only."""
        every, groups = self._route_of(envelope.subject)
        for receiver in every:
            self._hand_over(envelope, receiver)
        for members in groups:
            self._hand_over(envelope, members[next(self._turns) % len(members)])

    def _hand_over(self, envelope: Envelope, receiver: Receiver) -> None:
        if self._coded:
            envelope = envelope._replace(message=receiver.decoder.decode(encode(envelope.message)))
        receiver.handler(envelope)

    def _find_route(self, subject: str) -> Route:
        wildcard = [receiver for receiver in self._wildcard if matches(receiver.pattern, subject)]
        groups: dict[str, list[Receiver]] = defaultdict(list)
        every: list[Receiver] = []
        for receiver in (*self._literal.get(subject, ()), *wildcard):
            (groups[receiver.queue] if receiver.queue else every).append(receiver)
        every += [members[0] for members in groups.values() if len(members) == 1]
        return Route(every, [members for members in groups.values() if len(members) > 1])

    def _handler(self, core: Core) -> Handler:
        def handle(envelope: Envelope) -> None:
            reply = Reply(envelope.reply) if envelope.reply else None
            self.say(core.handle(envelope.message, self._clock.now_ms, reply))

        return handle
