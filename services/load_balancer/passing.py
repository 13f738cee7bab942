"""What is said when a call goes to an engine, and when an engine is gone."""

from autellix.schemas import subjects
from autellix.schemas.ids import EngineId, Incarnation
from autellix.schemas.messages import AdmittedCall, Call, CallRouted, EngineDown, EngineLoad, EngineUp, RoutedCall
from autellix.services.core import Out, announce
from autellix.services.load_balancer.choices import Choice


def passed_on(
    admitted: AdmittedCall, choice: Choice, incarnation: Incarnation, now_ms: float, *, moved: bool
) -> list[Out]:
    """Return a call on its way to the engine that was chosen, and the event that says so."""
    call = admitted.call
    routed = RoutedCall(
        call=call,
        program=admitted.program,
        engine_id=choice.engine_id,
        incarnation=incarnation,
        reason=choice.reason,
        moved=moved,
    )
    told = _told(call, choice.engine_id, choice.reason, now_ms, becomes_home=choice.becomes_home)
    return [Out(subjects.engine_calls(choice.engine_id), routed), told]


def routed_before(call: Call, engine_id: EngineId, now_ms: float) -> Out:
    """Return once more the event that says where a call went."""
    return _told(call, engine_id, "sent again; it was there already", now_ms, becomes_home=False)


def _told(call: Call, engine_id: EngineId, reason: str, now_ms: float, *, becomes_home: bool) -> Out:
    event = CallRouted(
        call_id=call.call_id,
        program_id=call.program_id,
        thread_id=call.thread_id,
        at_ms=now_ms,
        engine_id=engine_id,
        reason=reason,
        becomes_home=becomes_home,
    )
    return announce(event)


def reported_up(up: EngineUp) -> EngineLoad:
    """Return the report of an engine that has just come up."""
    return EngineLoad(
        engine_id=up.engine_id,
        incarnation=up.incarnation,
        models=up.models,
        policy=up.policy,
        state="ready",
        slots=up.slots,
        calls=0,
        running=0,
        waiting=0,
        kv_usage=0.0,
        steps=0,
        kv_tokens=up.kv_tokens,
        at_ms=up.at_ms,
    )


def down(load: EngineLoad, reason: str, now_ms: float) -> EngineDown:
    """Return the event that an engine is gone."""
    return EngineDown(engine_id=load.engine_id, incarnation=load.incarnation, reason=reason, at_ms=now_ms)
