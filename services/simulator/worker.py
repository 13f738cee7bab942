"""An engine worker in virtual time: the decisions of the real one, around a simulated engine."""

from functools import partial
from math import inf

import msgspec

from autellix.engine.executor import Account, EngineInfo, ProgramOver
from autellix.engine.simulation.calls import Ended, Happening, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.schemas import subjects
from autellix.schemas.codec import PROGRAM_ENDS, Decoder
from autellix.schemas.ids import CallId, EngineId, Incarnation
from autellix.schemas.messages import CancelCalls, Priorities, ReleaseHeld, RoutedCall
from autellix.services.core import announce
from autellix.services.engine_worker.core import RELEASED, End, Verdict, WorkerCore
from autellix.services.simulator.clock import Clock
from autellix.services.simulator.contents import ContentStore
from autellix.services.simulator.virtual_bus import Envelope, VirtualBus

BEAT_MS = 1000.0
IDLE_MS = 100.0
"""How soon a heartbeat says that the engine fell idle."""


class Metadata(msgspec.Struct):
    """What a simulated agent notes in its request."""

    content: str


class Body(msgspec.Struct):
    """What of a request the simulated engine reads."""

    metadata: Metadata


_BODIES = msgspec.json.Decoder(Body)
NO_ANSWER = End()
"""A simulated engine counts tokens and says nothing."""


class SimulatedWorker:
    """One engine on the bus."""

    def __init__(
        self,
        engine_id: EngineId,
        engine: SimulatedEngine,
        info: EngineInfo,
        *,
        clock: Clock,
        bus: VirtualBus,
        store: ContentStore,
    ) -> None:
        self.core = WorkerCore(engine_id, Incarnation("1"))
        self.engine = engine
        self.calls_ended = 0
        self._info = info
        self._clock = clock
        self._bus = bus
        self._store = store
        self._routed: dict[CallId, RoutedCall] = {}
        self._stopped: dict[CallId, End] = {}
        """How calls end that were aborted."""
        self._wake_ms = inf
        self._beat_ms = inf

    def start(self) -> None:
        """Subscribe, and say that the engine is up."""
        self._bus.subscribe(subjects.engine_calls(self.core.engine_id), Decoder(RoutedCall), self._on_routed)
        self._bus.subscribe(subjects.CALL_CANCEL, Decoder(CancelCalls), self._on_cancel)
        release = subjects.engine_release(self.core.engine_id)
        self._bus.subscribe(release, Decoder(ReleaseHeld), self._on_release)
        self._bus.subscribe(subjects.PRIORITIES, Decoder(Priorities), self._on_priorities)
        for subject in subjects.PROGRAM_ENDS:
            self._bus.subscribe(subject, PROGRAM_ENDS, self._on_program_over)
        self._bus.say([announce(self.core.up(self._info, now_ms=self._clock.now_ms))])
        self._beat_by(self._clock.now_ms + BEAT_MS)

    def _on_routed(self, envelope: Envelope) -> None:
        routed: RoutedCall = envelope.message
        match self.core.arrive(routed):
            case Verdict.RUN:
                self._run(routed)
            case Verdict.CANCELLED:
                self._end(routed, End(cancelled="before it began"), Account(), self._clock.now_ms)
            case Verdict.DRAINING | Verdict.IGNORE:
                pass  # no simulated worker drains, and what is ignored has its end elsewhere

    def _run(self, routed: RoutedCall) -> None:
        call = routed.call
        content = self._store[_BODIES.decode(call.body).metadata.content]
        self._routed[call.call_id] = routed
        simulated = SimulatedCall(call.call_id, call.program_id, routed.program, *content, thread_id=call.thread_id)
        self.engine.add(simulated, self._clock.now_ms)
        self._wake_when_due()

    def _on_cancel(self, envelope: Envelope) -> None:
        order: CancelCalls = envelope.message
        for call_id in self.core.cancel(call_id=order.call_id, program_id=order.program_id):
            self._stopped[call_id] = End(cancelled="with its program" if order.program_id else "by its client")
            self.engine.abort(call_id, self._clock.now_ms)
        self._wake_when_due()

    def _on_release(self, envelope: Envelope) -> None:
        for call_id in self.core.release(envelope.message):
            self._stopped[call_id] = RELEASED
            self.engine.abort(call_id, self._clock.now_ms)
        self._wake_when_due()

    def _on_priorities(self, envelope: Envelope) -> None:
        self.engine.tell(envelope.message, self._clock.now_ms)

    def _on_program_over(self, envelope: Envelope) -> None:
        self.engine.tell(ProgramOver(program_id=envelope.message.program_id), self._clock.now_ms)
        self._wake_when_due()

    def _wake_when_due(self) -> None:
        if self.engine.next_ms != self._wake_ms:
            self._wake_ms = self.engine.next_ms
            if self._wake_ms < inf:
                self._clock.at(self._wake_ms, partial(self._wake, self._wake_ms))

    def _wake(self, due_ms: float) -> None:
        if due_ms != self._wake_ms:  # it was to be earlier or later, meanwhile
            return
        self._wake_ms = inf
        for happening in self.engine.advance(self._clock.now_ms):
            self._tell(happening)
        self._wake_when_due()

    def _tell(self, happening: Happening) -> None:
        what = happening.what
        routed = self._routed[what.call_id]
        if isinstance(what, Ended):
            del self._routed[what.call_id]
            self._end(routed, self._stopped.pop(what.call_id, NO_ANSWER), what.account, happening.at_ms)
        else:
            self._bus.say([announce(self.core.turn(routed, what, now_ms=happening.at_ms))])

    def _end(self, routed: RoutedCall, end: End, account: Account, now_ms: float) -> None:
        self.calls_ended += not end.released
        self._bus.say(self.core.end(routed, end, account, seq=1, now_ms=now_ms))
        if not self.core.live:
            self._beat_by(now_ms + IDLE_MS)

    def _beat_by(self, at_ms: float) -> None:
        """See to it that a heartbeat comes at that time, if not before."""
        if at_ms < self._beat_ms:
            self._beat_ms = at_ms
            self._clock.at(at_ms, partial(self._beat, at_ms))

    def _beat(self, due_ms: float) -> None:
        if due_ms != self._beat_ms:
            return
        now_ms, self._beat_ms = self._clock.now_ms, inf
        self._bus.say([announce(self.core.heartbeat(self._info, self.engine.load(now_ms), now_ms=now_ms))])
        self._beat_by(now_ms + BEAT_MS)
