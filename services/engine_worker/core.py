"""Which calls an engine worker takes, and what is said when one ends; without I/O.

Rules:
* A call runs once: a second delivery of it is ignored, while it lives and for a while after it ended.
* An order to cancel may come before the call (another subject, another order): it leaves a tombstone for a while.
* A call has one end. The event comes before the terminal frame, so that a client that answers at once with its next
  call finds the process table up to date.
* A draining worker refuses what is new as safe to retry.
* A call that the balancer says is not its any more ends without a word. So do all when the worker stood still for so
  long that it was taken for dead: it goes on under another incarnation, as if it had been started anew.
* When the balancer asks for it, the calls of a held program are given back: they end here without a word to the client,
  who has seen nothing of them, and run elsewhere. A program stays if any of its calls passed, and a call that was moved
  once.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from autellix.engine.executor import Account, EngineInfo, Held, Load, Preempted, Resumed, Started, Turn
from autellix.engine.policy.pressure import ON_DEVICE, Hold
from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, EngineId, Incarnation, ProgramId
from autellix.schemas.messages import (
    Call,
    CallCancelled,
    CallFailed,
    CallFinished,
    CallHeld,
    CallPreempted,
    CallResumed,
    CallStarted,
    CallTurn,
    EngineDown,
    EngineLoad,
    EngineUp,
    Failed,
    Finished,
    Placed,
    ReleasedCall,
    ReleaseHeld,
    RoutedCall,
)
from autellix.services.core import Out, announce

REMEMBERED = 20_000
"""Ended calls and tombstones that are kept, the oldest go first."""


class Verdict(Enum):
    """What to do with a call that arrives."""

    RUN = "run"
    IGNORE = "ignore"
    CANCELLED = "cancelled"
    DRAINING = "draining"


class End(NamedTuple):
    """How a call ended here: an answer, an error, or neither, when it was cancelled or given back."""

    response: Any = None
    status: int = 200
    error: ErrorBody | None = None
    cancelled: str = ""
    """Why, if it was cancelled."""
    retry_safe: bool = False
    released: bool = False
    """It was held, and is given back."""
    forgotten: bool = False
    """It is not ours any more."""

    @property
    def outcome(self) -> str:
        """Return `finished`, `failed`, `cancelled`, `released` or `forgotten`."""
        if self.released or self.forgotten:
            return "released" if self.released else "forgotten"
        return "cancelled" if self.cancelled else "failed" if self.error else "finished"


RELEASED = End(released=True)
FORGOTTEN = End(forgotten=True)


@dataclass
class WorkerCore:
    """The calls of one engine worker."""

    engine_id: EngineId
    incarnation: Incarnation
    draining: bool = False

    def __post_init__(self) -> None:
        self.live: dict[CallId, Call] = {}
        self._held: dict[CallId, RoutedCall] = {}
        self._orders: dict[EngineId, float] = {}
        """Of each engine that took over from this one, the heartbeat that it did so for last."""
        self._ended: OrderedDict[CallId, None] = OrderedDict()
        self._tombstones: OrderedDict[CallId, None] = OrderedDict()

    def up(self, info: EngineInfo, *, now_ms: float) -> EngineUp:
        """Return the event that tells of a new engine."""
        return EngineUp(engine_id=self.engine_id, incarnation=self.incarnation, at_ms=now_ms, **info._asdict())

    def down(self, reason: str, *, now_ms: float) -> EngineDown:
        """Return the event that tells that the engine left."""
        return EngineDown(engine_id=self.engine_id, incarnation=self.incarnation, reason=reason, at_ms=now_ms)

    def heartbeat(self, info: EngineInfo, load: Load, *, now_ms: float) -> EngineLoad:
        """Return the event that tells how busy the engine is."""
        return EngineLoad(
            engine_id=self.engine_id,
            incarnation=self.incarnation,
            models=info.models,
            policy=info.policy,
            state="draining" if self.draining else "ready",
            slots=info.slots,
            calls=len(self.live),
            oldest_call_at_ms=min((call.arrival_at_ms for call in self.live.values()), default=None),
            kv_tokens=info.kv_tokens,
            at_ms=now_ms,
            **load._asdict(),
        )

    def arrive(self, routed: RoutedCall) -> Verdict:
        """Decide on a call that arrives; one that is to run is live from now on."""
        call = routed.call
        if routed.incarnation != self.incarnation or call.call_id in self.live or call.call_id in self._ended:
            return Verdict.IGNORE
        if call.call_id in self._tombstones:
            return Verdict.CANCELLED
        if self.draining:
            return Verdict.DRAINING
        self.live[call.call_id] = call
        return Verdict.RUN

    def cancel(self, *, call_id: CallId | None, program_id: ProgramId | None) -> list[CallId]:
        """Take an order to cancel one call, or else those of a program; return the live calls it hits.

        A call that was named itself is cancelled also if it comes later.
        """
        if call_id is None:
            return [live for live, call in self.live.items() if call.program_id == program_id]
        _remember(self._tombstones, call_id)
        return [call_id] if call_id in self.live else []

    def release(self, order: ReleaseHeld) -> list[CallId]:
        """Return the calls to give back, now held no more: those of the program with the least to compute elsewhere."""
        if order.taker:
            if self._orders.get(order.taker) == order.asked_at_ms:  # from another balancer
                return []
            self._orders[order.taker] = order.asked_at_ms
        passed = {call.program_id for call_id, call in self.live.items() if call_id not in self._held}
        programs: dict[ProgramId, list[RoutedCall]] = {}
        for routed in self._held.values():
            programs.setdefault(routed.call.program_id, []).append(routed)
        movable = [
            calls
            for program_id, calls in programs.items()
            if program_id not in passed and all(each.call.model in order.models and not each.moved for each in calls)
        ]
        chosen = min(movable, key=_prompt_tokens, default=[])
        if _prompt_tokens(chosen) > order.prompt_tokens_max:
            return []
        call_ids = [each.call.call_id for each in chosen]
        for call_id in call_ids:
            del self._held[call_id]
        return call_ids

    def turn(self, routed: RoutedCall, turn: Turn, *, now_ms: float) -> CallTurn:
        """Return the event that tells of a call's turn."""
        known = self._named(routed, now_ms)
        match turn:
            case Held():
                if turn.where != ON_DEVICE:  # its cache is here, and it waits for calls to end, not for room to keep it
                    self._held[turn.call_id] = routed
                hold = Hold(turn.order, turn.programs_ahead, turn.wanted_tokens, turn.free_tokens, turn.where)
                return CallHeld(**known, reason=str(hold))
            case Started():
                self._held.pop(turn.call_id, None)
                return CallStarted(**known, wait_ms=turn.wait_ms)
            case Preempted():
                return CallPreempted(**known)
            case Resumed():
                return CallResumed(**known)

    def end(self, routed: RoutedCall, end: End, account: Account, *, seq: int, now_ms: float) -> list[Out]:
        """Return the event and then the terminal frame of a call, or what gives it back; it is live no more."""
        call = routed.call
        self.live.pop(call.call_id, None)
        self._held.pop(call.call_id, None)
        if end.forgotten:
            return []
        if end.released:
            released = ReleasedCall(call=call, program=routed.program, engine_id=self.engine_id)
            return [Out(subjects.CALL_RELEASED, released)]
        _remember(self._ended, call.call_id)
        known = self._known(routed, account, now_ms)
        if end.cancelled:
            error = ErrorBody(message=f"The call was cancelled: {end.cancelled}.", type="cancelled", code="cancelled")
            event: Any = CallCancelled(**known, reason=end.cancelled)
            frame: Any = Failed(status=499, error=error, call_id=call.call_id)
        elif end.error:
            event = CallFailed(**known, status=end.status, error=end.error)
            frame = Failed(
                status=end.status,
                error=end.error,
                call_id=call.call_id,
                retry_safe=end.retry_safe,
                retry_after_s=1.0 if end.status == 503 else None,
            )
        else:
            event = CallFinished(**known)
            placed = self.placed(routed, account.wait_ms) if seq == 1 else None
            frame = Finished(call_id=call.call_id, seq=seq, call=event, response=end.response, placed=placed)
        return [announce(event), Out(call.reply_to, frame, call.reply_json)]

    def placed(self, routed: RoutedCall, wait_ms: float) -> Placed:
        """Return what the first frame of an answer says of where it comes from."""
        return Placed(engine_id=self.engine_id, reason=routed.reason, wait_ms=wait_ms)

    def _known(self, routed: RoutedCall, account: Account, now_ms: float) -> dict[str, Any]:
        return {
            **self._named(routed, now_ms),
            "arrival_at_ms": routed.call.arrival_at_ms,
            "critical_path_at_arrival_ms": routed.program.critical_path_ms,
            **account._asdict(),
        }

    def _named(self, routed: RoutedCall, now_ms: float) -> dict[str, Any]:
        call = routed.call
        return {
            "call_id": call.call_id,
            "program_id": call.program_id,
            "thread_id": call.thread_id,
            "at_ms": now_ms,
            "engine_id": self.engine_id,
        }


def _prompt_tokens(calls: Iterable[RoutedCall]) -> int:
    """Return how many tokens the prompts of some calls have, as far as that is known without a tokenizer."""
    return sum(each.program.prompt_tokens_estimate for each in calls)


def _remember(memory: OrderedDict[Any, None], name: str) -> None:
    memory[name] = None
    memory.move_to_end(name)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
