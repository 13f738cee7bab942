"""The session manager, the process table and the load balancer: their real cores, their deaths, and how they come back.

As with `journal.py`, the first two take in their last snapshot and every event kept since. After the bus was away all
three take in what they missed, before they hear anything else, as with `missed.py`.
"""

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from autellix.schemas.events import CallEvent
from autellix.services.config import LoadBalancerSettings, ProcessTableSettings, SessionManagerSettings
from autellix.services.core import Out, Reply
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.load_balancer.listens import LISTENS as BALANCER_LISTENS
from autellix.services.process_table.core import ProcessTable
from autellix.services.process_table.listens import LISTENS as TABLE_LISTENS
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.listens import LISTENS as MANAGER_LISTENS
from autellix.services.simulator.clock import Clock
from autellix.services.simulator.faults.bus import FaultBus
from autellix.services.simulator.faults.invariants import broken_in

TICK_MS = 500.0
SAVE_TICKS = 4
TTL_S = 45.0
LISTENS = {"session-manager": MANAGER_LISTENS, "process-table": TABLE_LISTENS, "load-balancer": BALANCER_LISTENS}


class Service:
    """One service, life after life."""

    def __init__(
        self, place: str, clock: Clock, bus: FaultBus, wall_ms: Callable[[], float], chance: random.Random
    ) -> None:
        self.place = place
        self._clock = clock
        self._bus = bus
        self._wall_ms = wall_ms
        self._chance = chance
        self._ticks = 0
        self._saved: tuple[bytes, int] = (b"", 0)
        """A snapshot, and how many events it knows for certain."""
        self._known = 0
        """How many events this life knows for certain."""
        self._sent: list[int] = []
        """How many events were kept at each tick: those of two seconds ago have arrived."""
        self._outages = 0
        self.core: Any = self._new()
        self.broken: list[str] = []
        """What did not hold after something was heard."""
        for listen in LISTENS[place]:
            bus.listen(place, listen.subject, self._hear)
        clock.at(TICK_MS, partial(self._tick, bus.lives[place]))

    def _new(self) -> Any:
        match self.place:
            case "session-manager":
                settings = SessionManagerSettings(ttl_s=TTL_S)
                return SessionManager(settings, new_id=lambda: f"{self._chance.getrandbits(64):016x}", secret=b"secret")
            case "process-table":
                return ProcessTable(ProcessTableSettings())
        return LoadBalancer(LoadBalancerSettings(), self._chance, began_at_ms=self._wall_ms())

    def _hear(self, message: Any, reply: str) -> None:
        self._hear_missed()
        self._say(self.core.handle(message, self._wall_ms(), Reply(reply) if reply else None))

    def _hear_missed(self) -> None:
        """Have it hear first what passed while the bus was away; the balancer asks for events of calls only."""
        if self._outages != self._bus.outages:
            self._outages = self._bus.outages
            for event in self._bus.kept[self._known :]:
                if self.place != "load-balancer" or isinstance(event, CallEvent):
                    self._say(self.core.handle(event, self._wall_ms()))

    def _say(self, outs: Iterable[Out]) -> None:
        self._bus.say(self.place, outs)
        if not self.broken:  # the first is what to look at
            self.broken += broken_in(self.core)

    def crash(self) -> None:
        """Die."""
        self._bus.down.add(self.place)
        self._bus.lives[self.place] += 1

    def start(self) -> None:
        """Come back."""
        self._bus.down.discard(self.place)
        self.core = self._new()
        if self.place != "load-balancer":
            snapshot, known = self._saved
            if snapshot:
                self.core.restore(snapshot, self._wall_ms())
            for event in self._bus.kept[known:]:
                self.core.recover(event, self._wall_ms())
            self.core.recovered(self._wall_ms())
        self._known, self._outages = len(self._bus.kept), self._bus.outages
        self._clock.at(self._clock.now_ms + TICK_MS, partial(self._tick, self._bus.lives[self.place]))

    def _tick(self, life: int) -> None:
        if life != self._bus.lives[self.place]:
            return
        if not self._bus.away:
            self._hear_missed()
            self._say(self.core.tick(self._wall_ms()))
            self._ticks += 1
            self._save()
        self._clock.at(self._clock.now_ms + TICK_MS, partial(self._tick, life))

    def _save(self) -> None:
        """Keep a snapshot now and then; it names only events that have arrived, since none is under way for 2 s."""
        self._sent.append(len(self._bus.kept))
        if self._ticks % SAVE_TICKS or len(self._sent) <= SAVE_TICKS:
            return
        self._known = self._sent[-1 - SAVE_TICKS]
        if self.place != "load-balancer":
            self._saved = self.core.snapshot(), self._known
        del self._sent[: -1 - SAVE_TICKS]
