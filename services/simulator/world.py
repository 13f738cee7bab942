"""Puts the whole product together in virtual time and runs it: `simulate` is the simulator's one entry."""

import itertools
import random
from collections import deque
from collections.abc import Sequence
from functools import partial
from math import inf

from msgspec.structs import replace

from autellix.engine.simulation.timing import Calibration
from autellix.schemas import subjects
from autellix.schemas.codec import ENGINE_EVENTS, Decoder
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import Frame, SessionAnswer
from autellix.schemas.traces.workloads import Arrival, arrivals, check_fit
from autellix.services.config import ProcessTableSettings, SessionManagerSettings
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.load_balancer.listens import LISTENS as BALANCER_LISTENS
from autellix.services.process_table.core import ProcessTable
from autellix.services.process_table.listens import LISTENS as TABLE_LISTENS
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.listens import LISTENS as MANAGER_LISTENS
from autellix.services.simulator.agent import INBOXES, Agent, EndedCall, Interrupts, Surroundings
from autellix.services.simulator.clock import Clock
from autellix.services.simulator.contents import Contents, ContentStore
from autellix.services.simulator.engines import calibration_of, capacity_tokens, engine_info, new_engine
from autellix.services.simulator.measurements import Measurements
from autellix.services.simulator.oracle import Oracle
from autellix.services.simulator.results import EngineRow, Result, summary
from autellix.services.simulator.scenario import Scenario, checked
from autellix.services.simulator.stays import Stays
from autellix.services.simulator.virtual_bus import Envelope, VirtualBus
from autellix.services.simulator.worker import SimulatedWorker

TICK_MS = 1000.0
NEVER_S = 1e9
"""Simulated engines make no step while all their programs wait; they do not stand still for that."""
WORKING_SET_TICKS = 16
"""Ticks between two looks at the working set."""


def simulate(scenario: Scenario) -> Result:
    """Run a scenario; equal scenarios have equal results, in any process.

    Raises:
        ValueError: before anything runs, for a scenario, workload, trace or calibration that makes no sense.
    """
    return World(checked(scenario), arrivals(scenario)).run()


class World:
    """One simulation: the cores of the services on a virtual bus, engines, and agents.

    Args:
        scenario: What to simulate.
        arriving: The programs, in order of arrival.
        coded: Encode and decode every message, as the real bus does.
    """

    def __init__(self, scenario: Scenario, arriving: Sequence[Arrival], *, coded: bool = False) -> None:
        calibration = calibration_of(scenario)
        check_fit(arriving, capacity_tokens(calibration))
        self.clock = Clock()
        self.bus = VirtualBus(self.clock, coded=coded)
        self.store: ContentStore = {}
        self.agents: dict[int, Agent] = {}
        """Those that have arrived and are not over."""
        self.measurements = Measurements(scenario)
        self._scenario = scenario
        block_tokens = calibration.engine.block_size
        self._contents = Contents(block_tokens)
        self._oracle = Oracle(calibration.step)
        interrupts = Interrupts(scenario.interrupt_cap_s * 1000, scenario.interrupt_unknown_s * 1000)
        self._surroundings = Surroundings(self.clock, self.bus, self.store, block_tokens, interrupts, self)
        self._ticks = 0
        self._stays = Stays()
        self._room_blocks = scenario.engines * (calibration.engine.kv_tokens // block_tokens)
        self._start_services()
        self.workers = [self._worker(number, calibration) for number in range(scenario.engines)]
        self.bus.subscribe(f"{INBOXES}*.*", Decoder(Frame | SessionAnswer), self._on_inbox)
        self.bus.subscribe(subjects.ENGINE_EVENTS, ENGINE_EVENTS, self._on_engine)
        self._coming = deque(enumerate(arriving))
        """Programs that arrive when another is over."""
        while self._coming and self._coming[0][1].at_ms < inf:
            number, arrival = self._coming.popleft()
            self.clock.at(arrival.at_ms, partial(self._arrive, number, arrival))

    def _start_services(self) -> None:
        """Hang the cores on the bus, each listening to what the real service listens to."""
        numbers = itertools.count()
        limits = SessionManagerSettings(programs_max=self._scenario.programs)
        chance = random.Random(f"balancer {self._scenario.seed}")  # noqa: S311 - a simulation is repeatable
        self.manager = SessionManager(limits, new_id=lambda: f"{next(numbers):032x}", secret=b"simulator")
        self.table = ProcessTable(ProcessTableSettings())
        self.balancer = LoadBalancer(replace(self._scenario.balancer, engine_standstill_s=NEVER_S), chance)
        self.bus.hang(self.manager, MANAGER_LISTENS)
        self.bus.hang(self.table, TABLE_LISTENS)
        self.bus.hang(self.balancer, BALANCER_LISTENS)
        self.clock.at(TICK_MS, self._tick)

    def _worker(self, number: int, calibration: Calibration) -> SimulatedWorker:
        engine = new_engine(self._scenario, calibration, self._oracle.remaining_ms)
        info = engine_info(self._scenario, calibration)
        name = EngineId(f"engine-{number}")
        worker = SimulatedWorker(name, engine, info, clock=self.clock, bus=self.bus, store=self.store)
        worker.start()
        return worker

    def run(self) -> Result:
        """Let time pass until the measured programs are over, or the limit is reached, and return what came out."""
        limit_ms = self._scenario.limit_s * 1000
        self.bus.deliver()
        while not self.measurements.complete and self.clock.next_ms < limit_ms:
            self.clock.step()
            self.bus.deliver()
        if self.measurements.complete:
            return self._result(self.clock.now_ms, limit_hit=False)
        return self._result(limit_ms, limit_hit=True)

    def _result(self, now_ms: float, *, limit_hit: bool) -> Result:
        rows = self.measurements.rows(self.agents, now_ms)
        engines = [
            EngineRow(engine=each.core.engine_id, calls=each.calls_ended, counters=each.engine.counters)
            for each in self.workers
        ]
        finished = self.measurements.programs_finished
        return Result(
            scenario=self._scenario,
            summary=summary(
                rows,
                engines,
                programs_finished=finished,
                working_set=self.measurements.mean_working_set,
                virtual_ms=now_ms,
                limit_hit=limit_hit,
            ),
            engines=engines,
            programs=rows,
            calls=self.measurements.calls,
            loads=self.measurements.loads,
            stays=self._stays.all(now_ms),
        )

    def _tick(self) -> None:
        for core in (self.manager, self.table, self.balancer):
            self.bus.say(core.tick(self.clock.now_ms))
        if self._scenario.keep_stays:
            numbers = {agent.program_id: number for number, agent in self.agents.items()}
            self._stays.look(self.workers, numbers, self.clock.now_ms)
        if not self._ticks % WORKING_SET_TICKS:
            self.measurements.working_set(self._working_set())
        self._ticks += 1
        self.clock.at(self.clock.now_ms + TICK_MS, self._tick)

    def _working_set(self) -> float:
        """Return the contexts of the live programs, what they have in common once, over the room for them."""
        keys = {key for agent in self.agents.values() for context in agent.contexts() for key in context}
        return len(keys) / self._room_blocks

    def _arrive(self, number: int, arrival: Arrival) -> None:
        contents = self._contents.of_program(arrival.trace, arrival.program)
        agent = self.agents[number] = Agent(number, arrival, contents, self._surroundings)
        agent.start()

    def _on_inbox(self, envelope: Envelope) -> None:
        _, number, inbox = envelope.subject.split(".")
        self.agents[int(number)].hear(envelope.message, inbox)

    def _on_engine(self, envelope: Envelope) -> None:
        self.measurements.engine_event(envelope.message)

    def started(self, agent: Agent) -> None:
        """Hear from an agent that its program has an id."""
        self._oracle.started(agent.program_id, agent.arrival.program)

    def call_ended(self, agent: Agent, ended: EndedCall) -> None:
        """Hear from an agent that a call was answered."""
        self._oracle.call_ended(agent.program_id, ended.call)
        self.measurements.call_ended(agent, ended)

    def over(self, agent: Agent) -> None:
        """Hear from an agent that its program is over."""
        self._oracle.over(agent.program_id)
        self.measurements.over(agent, self.clock.now_ms)
        del self.agents[agent.number]
        if self._coming:
            number, arrival = self._coming.popleft()
            self._arrive(number, arrival._replace(at_ms=self.clock.now_ms))
