"""The decisions of the load balancer.

Rules:
* The rule that is set chooses the engine (`choices.py`); by most of them a program has a home, where its cache is. One
  that uses several models has a home for each.
* While engines hold programs, for lack of room for their caches, a call without a home goes where the wait is shortest.
  It is refused at once if its deadline comes before. What an engine holds may be moved to another (`moves.py`).
* To pick is to count: an engine's load is the set of calls routed to it that have not ended, so it cannot drift and is
  never negative. What an engine reports beyond that set (calls routed before this balancer started) is added.
* An engine that drains, is silent, stands still with calls to run, or restarted under a new incarnation is no candidate
  with its old calls. What nobody has heard anything of runs on another engine, once; the others end in a failure.
* A call that its engine must have had long ago and does not have any more is over: its end was lost on the bus.
* Each balancer judges silence by itself, and not by time in which it was held up itself. What it sent is its own to
  repeat and to end, until another one sends it (`others.py`).
* A call that arrives twice is routed once, one that has ended not at all, one that was given back to another engine.
"""

from collections.abc import Iterable
from math import inf, isfinite

from autellix.schemas import subjects
from autellix.schemas.base import Message
from autellix.schemas.ids import CallId, EngineId, Incarnation
from autellix.schemas.messages import (
    AdmittedCall,
    Call,
    CallCancelled,
    CallFailed,
    CallFinished,
    CallRouted,
    CallStarted,
    EngineDown,
    EngineList,
    EngineLoad,
    EngineUp,
    ForgetCalls,
    ListEngines,
    ProgramEnded,
    ProgramExpired,
    ReleasedCall,
)
from autellix.services.config import LoadBalancerSettings
from autellix.services.core import Chance, Out, Reply, announce, answer
from autellix.services.load_balancer.choices import KEEP_HOMES, RULES, Choice, Known
from autellix.services.load_balancer.engine import STANDS_STILL, STILL_MS, Engine, Sent, Still
from autellix.services.load_balancer.moves import take_over, why_moved
from autellix.services.load_balancer.others import ENDED_REMEMBERED, Homes, Others
from autellix.services.load_balancer.passing import down, passed_on, reported_up, routed_before
from autellix.services.load_balancer.prefixes import PrefixTree
from autellix.services.load_balancer.refusals import engine_full, no_engine, refuse
from autellix.services.load_balancer.work import CallWork
from autellix.services.recent import Recent

SILENT = "silent"
LATE_MS = 10_000.0
"""Within this time a routed call is on its engine, and its end is heard."""
ACQUAINTANCE_MS = 3000.0
"""Within this time of its start every engine has reported. A call that none could take until then is sent again."""


class LoadBalancer:
    """The live engines and where each call went."""

    def __init__(self, settings: LoadBalancerSettings, chance: Chance, *, began_at_ms: float = -inf) -> None:
        """Know nothing.

        Args:
            settings: The rule, and its numbers.
            chance: For ties.
            began_at_ms: When the service began: right after that it has not heard of the engines yet.
        """
        self._settings = settings
        self._began_at_ms = began_at_ms
        self._chance = chance
        self._choose = RULES[settings.policy](settings.short_prompt_tokens)
        self._moves = settings.move_held and settings.policy in KEEP_HOMES
        self._engines: dict[EngineId, Engine] = {}
        self._engine_of: dict[CallId, EngineId] = {}
        self._ended = Recent[CallId](ENDED_REMEMBERED)
        self._homes = Homes()
        self._others = Others()
        self._still: dict[EngineId, Still] = {}  # out for that
        self._work = CallWork()
        self._seen_at_ms = inf

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:
        """Take in a call to route, an event, or a question."""
        self._time_passed(now_ms)
        match message:
            case AdmittedCall():
                return self._route(message, now_ms)
            case ReleasedCall():
                return self._released(message, now_ms)
            case CallFinished() | CallFailed() | CallCancelled():
                self._call_ended(message.call_id, message.service_ms)
            case CallStarted():
                self._call_started(message)
            case CallRouted():
                self._homes.heard(message)
                known = message.call_id in self._ended
                return () if known else self._others.heard(message, self._engines, self._engine_of)
            case EngineUp():
                return self._engine_up(message, now_ms)
            case EngineLoad():
                return self._engine_load(message, now_ms)
            case EngineDown():
                return self._engine_down(message, now_ms)
            case ProgramEnded() | ProgramExpired():
                self._homes.forget(message.program_id)
            case ListEngines():
                return answer(reply, EngineList(engines=[engine.load for _, engine in sorted(self._engines.items())]))
        return ()

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Take engines that fell silent or stand still out of rotation."""
        self._time_passed(now_ms)
        outs: list[Out] = []
        for engine_id, engine in list(self._engines.items()):
            why = engine.trouble(now_ms, self._settings)
            if why == STANDS_STILL:
                self._still[engine_id] = Still(engine.load.incarnation, engine.load.steps, now_ms + STILL_MS)
            if why:
                outs += [announce(down(engine.load, SILENT, now_ms)), *self._drop(engine_id, why, now_ms)]
        return outs

    def _time_passed(self, now_ms: float) -> None:
        """Notice time that did not pass for engines: this balancer stood still, or the clock was set."""
        passed_ms, self._seen_at_ms = now_ms - self._seen_at_ms, now_ms
        if isfinite(passed_ms) and not 0 <= passed_ms <= self._settings.engine_silence_s * 500:
            for engine in self._engines.values():
                engine.shift(passed_ms)

    def _route(self, admitted: AdmittedCall, now_ms: float) -> list[Out]:
        call_id = admitted.call.call_id
        if call_id in self._ended:
            return []
        return self._told_again(admitted.call, now_ms) or self._place(admitted, now_ms)

    def _told_again(self, call: Call, now_ms: float) -> list[Out]:
        """Say once more where a call went: who sends it again has not heard. Nothing, if it went nowhere yet."""
        engine_id = self._engine_of.get(call.call_id) or self._others.engine_of(call.call_id)
        return [routed_before(call, engine_id, now_ms)] if engine_id else []

    def _released(self, released: ReleasedCall, now_ms: float) -> list[Out]:
        """Route a call anew that its engine gave back; one that was sent by a balancer before this one, too."""
        call_id, holder = released.call.call_id, self._engines.get(released.engine_id)
        if call_id in self._ended:
            return []
        if (self._engine_of.get(call_id) or self._others.engine_of(call_id)) not in (None, released.engine_id):
            return self._told_again(released.call, now_ms)
        self._engine_of.pop(call_id, None)
        sent = holder.end(call_id) if holder else None
        admitted = AdmittedCall(call=released.call, program=released.program)
        return self._place(admitted, now_ms, holder=holder, again=bool(sent and sent.again))

    def _place(
        self,
        admitted: AdmittedCall,
        now_ms: float,
        *,
        holder: Engine | None = None,
        lost: str = "",
        again: bool = False,
    ) -> list[Out]:
        """Send a call to the engine that the rule chooses, but not to `holder`, which gave it back.

        Args:
            admitted: The call.
            now_ms: The time.
            holder: Where it was held.
            lost: What became of the engine that it was on; empty: it was on none.
            again: Whether it was on one that was lost before.
        """
        call = admitted.call
        serving = [each for each in self._engines.values() if not call.model or call.model in each.load.models]
        if not serving:
            acquainted = now_ms - self._began_at_ms >= ACQUAINTANCE_MS
            return self._over(call, no_engine(admitted, now_ms, others=bool(self._engines))) if acquainted else []
        ready = [each.as_candidate() for each in serving if each.load.state == "ready" and each is not holder]
        if not ready:
            text = "No engine takes new calls."
            return self._over(call, refuse(admitted, 503, text, "no_engine", now_ms, retry_after_s=5.0))
        choice = self._choose(self._known(admitted), ready, self._chance)
        if choice.wait_ms and call.deadline_at_ms is not None and now_ms + choice.wait_ms > call.deadline_at_ms:
            return self._over(call, engine_full(admitted, choice.wait_ms, now_ms))
        if holder:
            prompt_tokens = admitted.program.prompt_tokens_estimate
            choice = choice._replace(reason=why_moved(holder, self._engines[choice.engine_id], prompt_tokens))
        elif lost:
            choice = choice._replace(reason=f"run again ({lost})")
        return self._send(admitted, choice, now_ms, moved=holder is not None, again=again or bool(lost))

    def _known(self, admitted: AdmittedCall) -> Known:
        """Return what the choice may depend on; a home chosen a moment ago is known only here."""
        call, facts = admitted.call, admitted.program
        home = self._homes.of(call.program_id, call.model, facts.home_engine)
        return Known(home, facts.prompt_tokens_estimate, call.body, self._work.of(call.model))

    def _send(self, admitted: AdmittedCall, choice: Choice, now_ms: float, *, moved: bool, again: bool) -> list[Out]:
        call, engine = admitted.call, self._engines[choice.engine_id]
        engine.calls[call.call_id] = Sent(admitted, now_ms, again)
        self._engine_of[call.call_id] = choice.engine_id
        self._others.forget(call.call_id)
        if choice.becomes_home:
            self._homes.choose(call.program_id, call.model, choice.engine_id)
        return passed_on(admitted, choice, engine.load.incarnation, now_ms, moved=moved)

    def _call_ended(self, call_id: CallId, service_ms: float = 0.0) -> None:
        self._ended.add(call_id)
        self._others.forget(call_id)
        engine_id = self._engine_of.pop(call_id, None)
        engine = self._engines.get(engine_id) if engine_id else None
        sent = engine.end(call_id) if engine else None
        if engine and sent and service_ms:
            self._work.ended(sent.admitted.call.model, service_ms, engine.load.slots)

    def _over(self, call: Call, outs: list[Out]) -> list[Out]:
        self._call_ended(call.call_id)  # it may come again before its own end is heard
        return outs

    def _call_started(self, event: CallStarted) -> None:
        engine = self._engines.get(event.engine_id)
        if engine and event.call_id in engine.calls:
            engine.started.add(event.call_id)

    def _engine_up(self, up: EngineUp, now_ms: float) -> list[Out]:
        if self._is_stale(up, now_ms):
            return []
        outs = self._restarted(up.engine_id, up.incarnation, now_ms)
        load = reported_up(up)
        self._engine(load, now_ms)
        return outs

    def _engine_load(self, load: EngineLoad, now_ms: float) -> list[Out]:
        if self._is_stale(load, now_ms):
            return []
        outs = self._restarted(load.engine_id, load.incarnation, now_ms)
        engine = self._engine(load, now_ms)
        outs += self._end_forgotten(engine, load, now_ms)
        engine.hear(load, now_ms)
        if self._moves:
            outs += take_over(engine, self._engines.values())
        return outs

    def _engine(self, load: EngineLoad, now_ms: float) -> Engine:
        """Return the engine that reports, which is in rotation from now on."""
        tree = PrefixTree(load.kv_tokens or self._settings.prefix_tree_tokens)
        return self._engines.setdefault(load.engine_id, Engine(load, now_ms, tree))

    def _end_forgotten(self, engine: Engine, load: EngineLoad, now_ms: float) -> list[Out]:
        """End the calls older than all that the engine has: what it said of their end did not reach everybody."""
        oldest_at_ms = load.oldest_call_at_ms if load.calls else inf
        if oldest_at_ms is None:  # it does not say
            return []
        old = [sent.admitted for sent in engine.calls.values() if sent.at_ms < now_ms - LATE_MS]
        outs: list[Out] = []
        for admitted in (each for each in old if each.call.arrival_at_ms < oldest_at_ms):
            self._call_ended(admitted.call.call_id)
            text = "The end of this call was lost on the bus."
            outs += refuse(admitted, 503, text, "end_lost", now_ms, engine_id=load.engine_id, retry_after_s=1.0)
        return outs

    def _is_stale(self, heard: EngineUp | EngineLoad, now_ms: float) -> bool:
        """Tell whether this is a late word of an earlier life of an engine, or of one that still stands still."""
        still = self._still.get(heard.engine_id)
        if still and isinstance(heard, EngineLoad) and still.is_word_of(heard, now_ms):
            return True
        self._still.pop(heard.engine_id, None)
        engine = self._engines.get(heard.engine_id)
        return engine is not None and engine.load.incarnation != heard.incarnation and heard.at_ms < engine.load.at_ms

    def _restarted(self, engine_id: EngineId, incarnation: Incarnation, now_ms: float) -> list[Out]:
        """Fail the calls of an earlier life of this engine: the new one does not know them."""
        engine = self._engines.get(engine_id)
        if engine is None or engine.load.incarnation == incarnation:
            return []
        return self._drop(engine_id, "restarted", now_ms)

    def _engine_down(self, down: EngineDown, now_ms: float) -> list[Out]:
        engine = self._engines.get(down.engine_id)
        if engine is None or engine.load.incarnation != down.incarnation or down.reason == SILENT:
            return []
        return self._drop(down.engine_id, down.reason, now_ms)

    def _drop(self, engine_id: EngineId, reason: str, now_ms: float) -> list[Out]:
        """Take an engine out of rotation, and have what its clients have seen nothing of run elsewhere."""
        engine = self._engines.pop(engine_id)
        self._others.lost(engine_id)
        forget = ForgetCalls(incarnation=engine.load.incarnation, call_ids=tuple(engine.calls))
        outs = [Out(subjects.engine_forget(engine_id), forget)] if engine.calls else []
        models = {name for each in self._engines.values() if each.load.state == "ready" for name in each.load.models}
        for call_id, (admitted, *_) in engine.calls.items():
            if engine.is_untold(call_id) and (admitted.call.model in models or (models and not admitted.call.model)):
                del self._engine_of[call_id]
                outs.extend(self._place(admitted, now_ms, lost=reason))
                continue
            self._call_ended(call_id)
            text = f"The engine that ran this call is gone ({reason}); part of it may have run."
            outs += refuse(admitted, 503, text, "engine_lost", now_ms, engine_id=engine_id, retry_after_s=1.0)
        return outs
