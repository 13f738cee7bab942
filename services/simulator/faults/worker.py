"""An engine worker under faults: the real core, and what the real shell does without a bus and after it stood still."""

from functools import partial
from math import inf
from typing import Any

import msgspec

from autellix.engine.executor import Account, Started
from autellix.engine.simulation.calibration import load_calibration
from autellix.engine.simulation.calls import Ended, Happening, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, EngineId, Incarnation
from autellix.schemas.messages import CancelCalls, Chunk, EngineLoad, EngineUp, ForgetCalls, ReleaseHeld, RoutedCall
from autellix.services.config import LoadBalancerSettings
from autellix.services.core import Out, announce
from autellix.services.engine_worker.core import FORGOTTEN, RELEASED, End, Verdict, WorkerCore
from autellix.services.simulator.clock import Clock
from autellix.services.simulator.engines import engine_info, new_engine
from autellix.services.simulator.faults.bus import FaultBus
from autellix.services.simulator.scenario import Scenario

BEAT_MS = 1000.0
SILENCE_MS = LoadBalancerSettings().engine_silence_s * 1000
SCENARIO = Scenario()
CALIBRATION = load_calibration(SCENARIO.calibration)
INFO = engine_info(SCENARIO, CALIBRATION)
LATE = ErrorBody(
    message="The deadline passed before the answer was whole.", type="server_error", code="deadline_exceeded"
)
"""As the real worker says it."""


class FaultWorker:
    """One engine and its worker, life after life."""

    def __init__(self, place: str, clock: Clock, bus: FaultBus, wall_ms: Any) -> None:
        self.place = place
        self._clock = clock
        self._bus = bus
        self._wall_ms = wall_ms
        self._lives = 0
        self._blocks = 0
        for subject, take in (
            (subjects.engine_calls(EngineId(place)), self._on_routed),
            (subjects.CALL_CANCEL, self._on_cancel),
            (subjects.engine_release(EngineId(place)), self._on_release),
            (subjects.engine_forget(EngineId(place)), self._on_forget),
            (subjects.PRIORITIES, self._on_notice),
        ):
            bus.listen(place, subject, take)
        self.start()

    @property
    def _engine_ms(self) -> float:
        """The engine's own time, which stands still when it does."""
        return self._clock.now_ms - self._stood_ms

    def _new_incarnation(self) -> Incarnation:
        self._lives += 1
        return Incarnation(str(self._lives))

    def start(self) -> None:
        """Begin to live."""
        self._bus.down.discard(self.place)
        self.core = WorkerCore(EngineId(self.place), self._new_incarnation())
        self.engine: SimulatedEngine = new_engine(SCENARIO, CALIBRATION, lambda _program: 0.0)
        self._routed: dict[CallId, RoutedCall] = {}
        self._stopped: dict[CallId, End] = {}
        self._seq: dict[CallId, int] = {}
        self._outbox: list[Out] = []
        self._stood_ms = 0.0
        self._frozen_at_ms = 0.0
        self._renewed_ms = self._clock.now_ms
        self._wake_ms = inf
        self._say(announce(self.core.up(INFO, now_ms=self._wall_ms())))
        self._beat(self._bus.lives[self.place])

    @property
    def is_gone(self) -> bool:
        """Whether it is dead, or stands still."""
        return self.place in self._bus.down or self.place in self._bus.frozen

    def crash(self) -> None:
        """Die with all calls."""
        self._bus.down.add(self.place)
        self._bus.lives[self.place] += 1
        self._bus.frozen.pop(self.place, None)

    def freeze(self) -> None:
        """Stand still."""
        self._bus.frozen[self.place] = []
        self._frozen_at_ms = self._clock.now_ms

    def thaw(self) -> None:
        """Go on with what came meanwhile."""
        waiting = self._bus.frozen.pop(self.place)
        self._stood_ms += self._clock.now_ms - self._frozen_at_ms
        for action in waiting:
            action()
        self._wake_when_due(anew=True)

    def _alive(self, life: int, action: Any) -> None:
        """Do something if it still lives; after the thaw, if it stands still."""
        if life == self._bus.lives[self.place]:
            if self.place in self._bus.frozen:
                self._bus.frozen[self.place].append(action)
            else:
                action()

    def _after(self, wait_ms: float, action: Any) -> None:
        self._clock.at(self._clock.now_ms + wait_ms, partial(self._alive, self._bus.lives[self.place], action))

    # --- what is said

    def _say(self, *outs: Out) -> None:
        self._outbox += outs
        self.flush()

    def flush(self) -> None:
        """Say what there is to say, if the bus is there and others still take this worker for alive."""
        while self._outbox and not self._bus.away:
            out = self._outbox.pop(0)
            if self._clock.now_ms - self._renewed_ms > SILENCE_MS:
                self._begin_anew()
                continue
            self._bus.say(self.place, [out])
            if isinstance(out.message, EngineLoad | EngineUp):
                self._renewed_ms = self._clock.now_ms

    def _begin_anew(self) -> None:
        self._outbox.clear()
        for call_id in list(self._routed):
            self._stop(call_id, FORGOTTEN)
        self.core.incarnation = self._new_incarnation()
        self._renewed_ms = self._clock.now_ms
        self._outbox.append(announce(self.core.up(INFO, now_ms=self._wall_ms())))

    def _beat(self, life: int) -> None:
        if life == self._bus.lives[self.place]:
            load = self.engine.load(self._engine_ms)
            self._say(announce(self.core.heartbeat(INFO, load, now_ms=self._wall_ms())))
            self._after(BEAT_MS, partial(self._beat, life))

    # --- what is heard

    def _on_routed(self, routed: RoutedCall, _reply: str) -> None:
        match self.core.arrive(routed):
            case Verdict.RUN:
                self._run(routed)
            case Verdict.CANCELLED:
                self._end(routed, End(cancelled="before it began"), Account())

    def _run(self, routed: RoutedCall) -> None:
        call = routed.call
        self._routed[call.call_id] = routed
        body = msgspec.json.decode(call.body)
        tokens = len(body["prompt"]), body["max_tokens"]
        blocks = sum(tokens) // CALIBRATION.engine.block_size
        self._blocks += blocks
        keys = range(self._blocks - blocks, self._blocks)
        self.engine.add(
            SimulatedCall(call.call_id, call.program_id, routed.program, *tokens, keys, thread_id=call.thread_id),
            self._engine_ms,
        )
        if call.deadline_at_ms is not None:
            late = partial(self._stop, call.call_id, End(status=504, error=LATE))
            self._after(max(0.0, call.deadline_at_ms - self._wall_ms()), late)
        self._wake_when_due()

    def _stop(self, call_id: CallId, end: End) -> None:
        if call_id in self._routed and (call_id not in self._stopped or end.forgotten):
            if call_id not in self._stopped:
                self.engine.abort(call_id, self._engine_ms)
            self._stopped[call_id] = end
            self._wake_when_due()

    def _on_cancel(self, order: CancelCalls, _reply: str) -> None:
        for call_id in self.core.cancel(call_id=order.call_id, program_id=order.program_id):
            self._stop(call_id, End(cancelled="by its client"))

    def _on_release(self, order: ReleaseHeld, _reply: str) -> None:
        for call_id in self.core.release(order):
            if not self._seq.get(call_id):
                self._stop(call_id, RELEASED)

    def _on_forget(self, order: ForgetCalls, _reply: str) -> None:
        for call_id in order.call_ids if order.incarnation == self.core.incarnation else ():
            self._stop(call_id, FORGOTTEN)

    def _on_notice(self, notice: Any, _reply: str) -> None:
        self.engine.tell(notice, self._engine_ms)

    # --- what the engine does

    def _wake_when_due(self, *, anew: bool = False) -> None:
        if anew or self.engine.next_ms != self._wake_ms:
            self._wake_ms = self.engine.next_ms
            if self._wake_ms < inf:
                self._after(max(0.0, self._wake_ms - self._engine_ms), partial(self._wake, self._wake_ms))

    def _wake(self, due_ms: float) -> None:
        if due_ms != self._wake_ms or self._engine_ms < due_ms - 1e-6:
            return
        self._wake_ms = inf
        for happening in self.engine.advance(max(self._engine_ms, due_ms)):
            self._tell(happening)
        self._wake_when_due()

    def _tell(self, happening: Happening) -> None:
        what = happening.what
        routed = self._routed[what.call_id]
        if isinstance(what, Ended):
            del self._routed[what.call_id]
            self._end(routed, self._stopped.pop(what.call_id, End()), what.account)
            return
        self._say(announce(self.core.turn(routed, what, now_ms=self._wall_ms())))
        if isinstance(what, Started) and routed.call.stream:
            self._seq[what.call_id] = 1
            self._say(Out(routed.call.reply_to, Chunk(call_id=what.call_id, seq=1, data=[{}])))

    def _end(self, routed: RoutedCall, end: End, account: Account) -> None:
        seq = self._seq.pop(routed.call.call_id, 0) + 1
        self._say(*self.core.end(routed, end, account, seq=seq, now_ms=self._wall_ms()))
