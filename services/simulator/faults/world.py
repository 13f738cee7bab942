"""One seed: services, engines and clients on a bus with faults, until all is quiet."""

import random
from functools import partial
from typing import Any

from autellix.schemas.messages import CallRouted, Event
from autellix.services.simulator.clock import Clock
from autellix.services.simulator.faults.bus import FaultBus
from autellix.services.simulator.faults.checks import Outcome, faults_of, records_of
from autellix.services.simulator.faults.clients import Client
from autellix.services.simulator.faults.plan import SERVICES, Fault, Plan
from autellix.services.simulator.faults.services import TICK_MS, Service
from autellix.services.simulator.faults.worker import SILENCE_MS, FaultWorker

WALL_MS = 1e12
CLIENTS_MAX_MS = 3_600_000.0
"""By then every client has lost its patience."""
QUIET_MS = 120_000.0
"""After the last client: programs expire, and what nobody has any more has ended."""
FORGET_MS = 3_700_000.0
"""After this the session manager has given up calls of an earlier life."""
STEP_MS = 60_000.0
GONE_MAX_MS = SILENCE_MS + 2 * TICK_MS + 400.0
"""Within this time of its last heartbeat, which may be 0.4 s under way, an engine is out of rotation."""


class FaultWorld:
    """Everything that one plan needs."""

    def __init__(self, plan: Plan) -> None:
        self.clock = Clock()
        self._plan = plan
        self._shift_ms = 0.0
        chance = random.Random(plan.seed + 1)  # noqa: S311 - to be replayed
        self.bus = FaultBus(self.clock, chance, delay_ms=plan.delay_ms, repeated=plan.repeated)
        self.bus.on_frame = self._on_frame
        self.bus.on_event = self._on_event
        self._strange: list[str] = []
        self.services = {name: Service(name, self.clock, self.bus, self._wall_ms, chance) for name in SERVICES}
        self.workers = {
            name: FaultWorker(name, self.clock, self.bus, self._wall_ms)
            for name in (f"engine-{number}" for number in range(plan.engines))
        }
        self.clients = [Client(each, self.clock, self.bus) for each in plan.programs]
        self._hit: dict[str, float] = {}
        """What something is wrong with, and since when."""
        self._upset_ms = 0.0
        """When the clock was set last, or the bus came back."""
        for fault in plan.faults:
            self.clock.at(fault.at_ms, partial(self._begin, fault))

    def _wall_ms(self) -> float:
        return WALL_MS + self.clock.now_ms + self._shift_ms

    def run(self) -> Outcome:
        """Let time pass until all is quiet, and return what is left."""
        last_ms = max((fault.at_ms + fault.for_ms for fault in self._plan.faults), default=0.0)
        while self.clock.now_ms < last_ms or not self._clients_are_over():
            if self.clock.now_ms > CLIENTS_MAX_MS:
                break
            self.clock.step()
        quiet_ms = self.clock.now_ms + QUIET_MS
        while self.clock.now_ms < quiet_ms:
            self.clock.step()
        return self._outcome()

    def _clients_are_over(self) -> bool:
        return all(
            client.over and all(each.ends or each.left or each.lost for each in client.attempts)
            for client in self.clients
        )

    def _outcome(self) -> Outcome:
        manager, table, balancer = (self.services[name].core for name in SERVICES)
        if len(manager._sessions):  # noqa: SLF001 - the check is of what is inside
            self._forget(manager, table, balancer)
        return Outcome(
            attempts=[attempt for client in self.clients for attempt in client.attempts],
            kept=self.bus.kept,
            records=records_of(table),
            sessions=len(manager._sessions),  # noqa: SLF001
            balancer_calls=len(balancer._engine_of),  # noqa: SLF001
            worker_calls=sum(len(worker.core.live) for worker in self.workers.values()),
            faults=self._plan.faults,
            lost_inboxes=frozenset(self.bus.lost_inboxes),
            strange=[*self._strange, *(wrong for service in self.services.values() for wrong in service.broken)],
        )

    def _forget(self, manager: Any, *others: Any) -> None:
        """Let an hour pass for the services alone, minute by minute: the session manager gives up calls then."""
        now_ms = self._wall_ms()
        for minute in range(int(FORGET_MS / STEP_MS) + 5):
            outs = [*manager.tick(now_ms + minute * STEP_MS)]
            while outs:
                out = outs.pop(0)
                if not out.subject.startswith("autellix.events."):
                    continue
                self.bus.kept.append(out.message)
                for core in (manager, *others):
                    outs += core.handle(out.message, now_ms + minute * STEP_MS)

    def _on_frame(self, message: Any, inbox: str) -> None:
        number = inbox.split(".")[1]
        if number.isdigit():
            self.clients[int(number)].hear(message, inbox)

    def _on_event(self, event: Event) -> None:
        """Notice a call that is sent where nobody has been for longer than it takes to see that."""
        if isinstance(event, CallRouted) and self.workers[event.engine_id].is_gone:
            since_ms = max(self._hit[event.engine_id], self._upset_ms)
            if self.clock.now_ms - since_ms > GONE_MAX_MS:
                self._strange.append(f"{event.call_id} is sent to {event.engine_id}, gone for {GONE_MAX_MS} ms")

    def _begin(self, fault: Fault) -> None:
        """Have something go wrong, unless something else is wrong there already."""
        if fault.kind == "wall":
            self._shift_ms += fault.shift_ms
            self._upset_ms = self.clock.now_ms
            return
        if fault.place in self._hit:
            return
        self._hit[fault.place] = self.clock.now_ms
        self.clock.at(self.clock.now_ms + fault.for_ms, partial(self._end, fault))
        match fault.kind:
            case "crash":
                self._named(fault.place).crash()
            case "freeze":
                self.workers[fault.place].freeze()
            case "outage":
                self.bus.leave()

    def _end(self, fault: Fault) -> None:
        del self._hit[fault.place]
        match fault.kind:
            case "crash":
                self._named(fault.place).start()
            case "freeze":
                self.workers[fault.place].thaw()
            case "outage":
                self._upset_ms = self.clock.now_ms
                self.bus.return_()
                for worker in self.workers.values():
                    if worker.place not in self.bus.frozen and worker.place not in self.bus.down:
                        worker.flush()

    def _named(self, place: str) -> Service | FaultWorker:
        return self.services.get(place) or self.workers[place]


def run_plan(plan: Plan) -> list[str]:
    """Run a plan, and return what did not hold."""
    return faults_of(FaultWorld(plan).run())
