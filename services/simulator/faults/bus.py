"""The virtual bus, with what can go wrong on a real one.

Rules:
* A message is for who listens when it is published; by a place that died meanwhile it is not heard.
* Order holds between one publisher and one subscription, as on NATS, and on each inbox; nowhere else.
* Events are kept in order of publication, as JetStream keeps them: also those that nobody hears.
* While the bus is away nothing arrives, what was under way is lost, and what is published waits at its publisher.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from autellix.schemas.messages import EngineLoad, Event
from autellix.services.bus import matches
from autellix.services.core import Out
from autellix.services.simulator.clock import Clock

INBOXES = "_INBOX."
EVENTS = "autellix.events."
REPEATED = ("autellix.events.", "autellix.internal.calls.submitted", "autellix.internal.calls.admitted")
"""What may come twice: events, which are replayed, and calls that are passed on again."""

Take = Callable[[Any, str], None]
"""Takes in a message and where it is answered."""


class Ear(NamedTuple):
    """One subscription."""

    place: str
    pattern: str
    take: Take


class FaultBus:
    """Carries messages between places."""

    def __init__(self, clock: Clock, chance: random.Random, *, delay_ms: float, repeated: float) -> None:
        self.kept: list[Event] = []
        self.lives: dict[str, int] = defaultdict(int)
        """Raised by each death of a place."""
        self.down: set[str] = set()
        self.frozen: dict[str, list[Callable[[], None]]] = {}
        """What waits for places that stand still."""
        self.away = False
        self.outages = 0
        self.lost_inboxes: set[str] = set()
        """Where frames were to go that were lost with the bus."""
        self.on_frame: Take = lambda _message, _inbox: None
        self.on_event: Callable[[Event], None] = lambda _event: None
        self._clock = clock
        self._chance = chance
        self._delay_ms = delay_ms
        self._repeated = repeated
        self._ears: list[Ear] = []
        self._waiting: list[tuple[str, str, Any, str]] = []
        self._last_ms: dict[tuple[str, str, str], float] = {}
        self._ears_of = lru_cache(4096)(self._find_ears)

    def listen(self, place: str, subject: str, take: Take) -> None:
        """Have what is published on a subject brought to a place."""
        self._ears.append(Ear(place, subject, take))
        self._ears_of.cache_clear()

    def publish(self, place: str, subject: str, message: Any, reply: str = "") -> None:
        """Send a message on its way."""
        if self.away:
            self._waiting.append((place, subject, message, reply))
            return
        if subject.startswith(EVENTS) and not isinstance(message, EngineLoad):
            self.kept.append(message)
            self.on_event(message)
        if subject.startswith(INBOXES):
            self._send(("", "", subject), subject, partial(self.on_frame, message, subject))
            return
        for ear in self._ears_of(subject):
            arrive = partial(ear.take, message, reply)
            self._send((place, ear.place, ear.pattern), subject, arrive)
            if self._repeated and subject.startswith(REPEATED) and self._chance.random() < self._repeated:
                self._send((place, ear.place, ear.pattern), subject, arrive)

    def say(self, place: str, outs: Iterable[Out]) -> None:
        """Send what a core decided, in order."""
        for out in outs:
            self.publish(place, out.subject, out.message)

    def leave(self) -> None:
        """Be away: what is under way is lost."""
        self.away = True
        self.outages += 1

    def return_(self) -> None:
        """Be back: what waited is sent."""
        self.away = False
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each[0] not in self.down:
                self.publish(*each)

    def _find_ears(self, subject: str) -> list[Ear]:
        return [ear for ear in self._ears if matches(ear.pattern, subject)]

    def _send(self, way: tuple[str, str, str], subject: str, arrive: Callable[[], None]) -> None:
        place = way[1]
        if place in self.down:
            return
        at_ms = self._clock.now_ms + 0.1 + self._delay_ms * self._chance.random() ** 4
        at_ms = self._last_ms[way] = max(at_ms, self._last_ms.get(way, 0.0))
        self._clock.at(at_ms, partial(self._arrive, place, subject, self.lives[place], self.outages, arrive))

    def _arrive(self, place: str, subject: str, life: int, outages: int, arrive: Callable[[], None]) -> None:
        if outages != self.outages:
            if subject.startswith(INBOXES):
                self.lost_inboxes.add(subject)
        elif place in self.down or self.lives[place] != life:
            return
        elif place in self.frozen:
            self.frozen[place].append(arrive)
        else:
            arrive()
