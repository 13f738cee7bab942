"""Clients under faults: they wait as long as the real ones, try again what is safe to, hang up, and end sessions."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from autellix.schemas import subjects
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import (
    Accepted,
    CancelCalls,
    EndSession,
    Failed,
    Finished,
    SessionEnded,
    SessionStarted,
    StartSession,
    SubmitCall,
)
from autellix.services.simulator.agent import MODEL
from autellix.services.simulator.clock import Clock
from autellix.services.simulator.faults.bus import INBOXES, FaultBus
from autellix.services.simulator.faults.plan import CallPlan, ProgramPlan

FIRST_FRAME_MS = 10_000.0
SILENCE_MS = 600_000.0
TRIES = 5


@dataclass
class Attempt:
    """One submission of one call, and what came back."""

    inbox: str
    at_ms: float
    call_id: CallId = field(default_factory=lambda: CallId(""))
    """Empty until it is accepted."""
    ends: list[Finished | Failed] = field(default_factory=list)
    late: int = 0
    """Frames after the end."""
    left: bool = False
    """Its client went away, or never heard that it was accepted."""
    lost: bool = False
    """Its client's patience ran out."""
    heard_ms: float = 0.0
    ended_ms: float = 0.0


class Client:
    """One program."""

    def __init__(self, plan: ProgramPlan, clock: Clock, bus: FaultBus) -> None:
        self.plan = plan
        self.attempts: list[Attempt] = []
        self.over = False
        self._clock = clock
        self._bus = bus
        self._place = f"client-{plan.number}"
        self._program = ProgramId("")
        self._session_over = False
        self._open = 0
        self._next = 0
        self._tries = 0
        self._waiting: dict[str, tuple[Attempt, CallPlan]] = {}
        clock.at(plan.at_ms, self._begin)
        if plan.end_ms is not None:
            clock.at(plan.end_ms, self._end_session)

    def _after(self, wait_ms: float, action: Any) -> None:
        self._clock.at(self._clock.now_ms + wait_ms, action)

    def _inbox(self, name: str) -> str:
        return f"{INBOXES}{self.plan.number}.{name}"

    def hear(self, message: Any, inbox: str) -> None:
        """Take in what came to one of its inboxes."""
        match message:
            case SessionStarted() if not self._program:
                self._program = message.program_id
                self._go_on()
            case SessionStarted() | SessionEnded():
                self._session_over |= isinstance(message, SessionEnded)
            case _ if inbox in self._waiting:
                self._frame(message, *self._waiting[inbox])

    def _begin(self) -> None:
        if self.plan.shape in ("single", "named"):
            self._go_on()
        elif not self._program and not self.over:
            self._tries += 1
            if self._tries > TRIES:
                self.over = True
                return
            self._bus.publish(self._place, subjects.SESSIONS_START, StartSession(), self._inbox("session"))
            self._after(FIRST_FRAME_MS, self._begin)

    def _go_on(self) -> None:
        """Submit what comes next: one call, or the rest of a fan."""
        calls = self.plan.calls
        if self._next == len(calls):
            if not self._open:
                self._finish()
            return
        last = len(calls) if self.plan.shape == "fan" and self._next else self._next + 1
        for call in calls[self._next : last]:
            self._open += 1
            self._after(call.pause_ms, partial(self._submit, call))
        self._next = last

    def _submit(self, call: CallPlan, tries: int = 0) -> None:
        if self.over:
            self._open -= 1
            return
        attempt = Attempt(self._inbox(f"call{len(self.attempts)}"), self._clock.now_ms, heard_ms=self._clock.now_ms)
        self.attempts.append(attempt)
        self._waiting[attempt.inbox] = (attempt, call)
        body = {
            "model": MODEL,
            "prompt": "x" * call.prompt_tokens,
            "max_tokens": call.output_tokens,
            "stream": call.stream,
        }
        session = {"session": self.plan.name} if self.plan.name else {"program_id": self._program or None}
        request = SubmitCall(api="/v1/completions", body=body, deadline_ms=call.deadline_ms, **session)
        self._bus.publish(self._place, subjects.CALLS_SUBMIT, request, attempt.inbox)
        self._tries = tries
        self._after(FIRST_FRAME_MS, partial(self._patience, attempt))
        if call.hang_up_ms is not None:
            self._after(call.hang_up_ms, partial(self._hang_up, attempt))

    def _frame(self, frame: Any, attempt: Attempt, call: CallPlan) -> None:
        attempt.heard_ms = self._clock.now_ms
        if attempt.ends:
            attempt.late += 1
        if isinstance(frame, Accepted):
            attempt.call_id = frame.call_id
            if attempt.left:
                self._cancel(attempt)
        elif isinstance(frame, Finished | Failed):
            attempt.ends.append(frame)
            attempt.ended_ms = self._clock.now_ms
            if len(attempt.ends) == 1 and not (attempt.left or attempt.lost):
                self._ended(frame, call)

    def _ended(self, frame: Finished | Failed, call: CallPlan) -> None:
        if isinstance(frame, Failed) and frame.retry_safe and self._tries < TRIES and not self.over:
            wait_ms = 1000 * (1.0 if frame.retry_after_s is None else frame.retry_after_s)
            self._after(wait_ms, partial(self._submit, call, self._tries + 1))
            return
        self._done(failed=isinstance(frame, Failed))

    def _done(self, *, failed: bool) -> None:
        self._open -= 1
        if failed:
            self._finish()
        elif self.plan.shape != "fan" or not self._open or self._next == 1:
            self._go_on()

    def _patience(self, attempt: Attempt) -> None:
        if attempt.ends or attempt.left or attempt.lost:
            return
        if not attempt.call_id:
            attempt.left = True
            self._done(failed=True)
        elif self._clock.now_ms - attempt.heard_ms >= SILENCE_MS:
            attempt.lost = True
            self._cancel(attempt)
            self._done(failed=True)
        else:
            self._clock.at(attempt.heard_ms + SILENCE_MS, partial(self._patience, attempt))

    def _hang_up(self, attempt: Attempt) -> None:
        if not (attempt.ends or attempt.left or attempt.lost):
            attempt.left = True
            if attempt.call_id:
                self._cancel(attempt)
            self._done(failed=False)

    def _cancel(self, attempt: Attempt) -> None:
        order = CancelCalls(call_id=attempt.call_id)
        self._bus.publish(self._place, subjects.CALLS_CANCEL, order, f"{INBOXES}nowhere")

    def _finish(self) -> None:
        """Be over, and say so, if it has a session; half of the named ones are left to expire."""
        self.over = True
        if self.plan.shape in ("chain", "fan") or (self.plan.name and self.plan.number % 2):
            self._tries = 0
            self._end_session()

    def _end_session(self) -> None:
        name = self._program or ProgramId(self.plan.name)
        if name and not self._session_over:
            self._bus.publish(self._place, subjects.SESSIONS_END, EndSession(program_id=name), self._inbox("session"))
