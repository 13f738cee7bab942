"""The end of a call that no engine answers."""

from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import AdmittedCall, CallFailed, Failed
from autellix.services.core import Out, announce


def refuse(
    admitted: AdmittedCall,
    status: int,
    text: str,
    code: str,
    now_ms: float,
    *,
    engine_id: EngineId | None = None,
    retry_after_s: float | None = None,
) -> list[Out]:
    """Return the end of a call that no engine answers: the event first, then the frame to the client."""
    call = admitted.call
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = ErrorBody(message=text, type=kind, code=code, param="model" if status == 404 else None)
    failed = CallFailed(
        call_id=call.call_id,
        program_id=call.program_id,
        thread_id=call.thread_id,
        engine_id=engine_id,
        at_ms=now_ms,
        arrival_at_ms=call.arrival_at_ms,
        critical_path_at_arrival_ms=admitted.program.critical_path_ms,
        status=status,
        error=error,
    )
    frame = Failed(
        status=status,
        error=error,
        call_id=call.call_id,
        retry_after_s=retry_after_s,
        retry_safe=status == 503 and engine_id is None,
    )
    return [announce(failed), Out(call.reply_to, frame, call.reply_json)]


def no_engine(admitted: AdmittedCall, now_ms: float, *, others: bool) -> list[Out]:
    """Return the end of a call that no engine serves the model of.

    Args:
        admitted: The call.
        now_ms: The time.
        others: Whether there are engines for other models.
    """
    if not others:
        return refuse(admitted, 503, "No engine is in rotation.", "no_engine", now_ms, retry_after_s=5.0)
    text = f"The model {admitted.call.model[:200]!r} does not exist."
    return refuse(admitted, 404, text, "model_not_found", now_ms)


def engine_full(admitted: AdmittedCall, wait_ms: float, now_ms: float) -> list[Out]:
    """Return the end of a call that would wait for room for longer than it may take."""
    text = f"The engines are full: a program waits {wait_ms / 1000:.1f} s for room, longer than the call may take."
    return refuse(admitted, 503, text, "engine_full", now_ms, retry_after_s=wait_ms / 1000)
