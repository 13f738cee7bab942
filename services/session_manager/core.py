"""The decisions of the session manager.

Rules:
* A program begins by `start_session`, or by the first call that names a session of the client's own choice, or with a
  call that names nothing; the last kind ends with that call.
* Program ids are unguessable. The id of a client-named session is derived from its name and a secret, so that every
  instance gives the same answer without asking the others.
* A program with a live call never expires. An idle one expires after its time to live.
* A call is validated here, before anything else learns of it. A refused call leaves no trace.
* A durable call is handed on to who keeps it, and comes back as an ordinary one each time that it is tried.
* A call without a thread gets one that has no live call: `main` first, so that a sequential program is one thread.
* A call that no engine was chosen for in time is passed on again, and one that is lost for good ends in a failure. So
  does one that its engine gave back.
* A program's kind is what the client says it is, at its start or with its first call; else that call's system prompt
  tells it. Nothing changes it later.
* A program has so many calls open at most, and so has a tenant; a tree that branches without an end is told to wait.
* A tenant's programs are for the others as if they did not exist. Who asks on a bare subject runs it all.
* A call that was given up and that nobody has any more ends here.
* To cancel a program's calls is to cancel each that is live now; the program goes on, and a named one may come again.
"""

from collections.abc import Callable, Iterable
from math import isfinite

from autellix.schemas import subjects, tenants
from autellix.schemas.base import Message
from autellix.schemas.identity import BEGUN, NOBODY, SOURCES
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import (
    Accepted,
    Call,
    CallCancelled,
    CallFailed,
    CallFinished,
    CallRouted,
    CallSubmitted,
    CancelAccepted,
    CancelCalls,
    EndSession,
    Event,
    Failed,
    ProgramEnded,
    ProgramExpired,
    ProgramStarted,
    ReleasedCall,
    SessionEnded,
    SessionStarted,
    SessionTouched,
    StartSession,
    SubmitCall,
    SubmittedCall,
    TouchSession,
)
from autellix.schemas.openai import RESPONSES, InvalidRequestError, check, generates, invalid
from autellix.services.config import SessionManagerSettings
from autellix.services.core import Out, Reply, announce, answer, asking
from autellix.services.session_manager.checks import check_call, check_name
from autellix.services.session_manager.durable import hand_on
from autellix.services.session_manager.ids import Ids, is_named
from autellix.services.session_manager.kinds import kind_of
from autellix.services.session_manager.limits import check_room_for_call, check_room_for_program
from autellix.services.session_manager.orphans import Orphan, Orphans
from autellix.services.session_manager.sessions import Session, Sessions
from autellix.services.session_manager.unrouted import Unrouted, end_lost


class SessionManager:
    """The sessions of all live programs."""

    def __init__(self, settings: SessionManagerSettings, *, new_id: Callable[[], str], secret: bytes) -> None:
        self._settings = settings
        self._ids = Ids(new_id, secret)
        self._sessions = Sessions()
        self._unrouted = Unrouted()
        self._orphans = Orphans()

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:
        """Take in a request, or what became of a call."""
        try:
            match message:
                case SubmitCall():
                    return self._submit(message, now_ms, reply)
                case StartSession():
                    return self._start(message, now_ms, reply)
                case TouchSession():
                    return self._touch(message, now_ms, reply)
                case EndSession():
                    return self._end(message, now_ms, reply)
                case CancelCalls():
                    return self._cancel(message, reply)
                case ReleasedCall():
                    self._unrouted.add(message.call, Out(subjects.CALL_RELEASED, message))
                case CallRouted():
                    self._unrouted.settle(message.call_id)
                case CallFinished() | CallFailed() | CallCancelled():
                    return self._call_ended(message, now_ms)
        except InvalidRequestError as error:
            busy = error.status in (429, 503)
            retry_after_s = 1.0 if busy else None
            failed = Failed(status=error.status, error=error.body, retry_after_s=retry_after_s, retry_safe=busy)
            return answer(reply, failed)
        return ()

    def tick(self, now_ms: float) -> Iterable[Out]:
        """End the calls that were lost, and expire the programs that were idle for too long."""
        outs = self._unrouted.tick(now_ms)
        outs += [announce(cancelled) for cancelled in self._orphans.tick(now_ms)]
        for session, call_id, thread_id in self._sessions.never_heard_of(now_ms):
            outs.append(announce(end_lost(session.program_id, call_id, thread_id, now_ms)))
        for session in self._sessions.expired(now_ms):
            outs.append(announce(ProgramExpired(program_id=session.program_id, at_ms=now_ms)))
        return outs

    def snapshot(self) -> bytes:
        """Return all that it knows but for calls that no engine was chosen for yet."""
        return self._sessions.snapshot(self._orphans)

    def restore(self, snapshot: bytes, now_ms: float) -> None:
        """Know what a snapshot says."""
        self._sessions.restore(snapshot, now_ms)

    def recover(self, event: Event, now_ms: float) -> None:
        """Take in an event that happened while it was not there, or that it knows already."""
        self._sessions.recover(event, now_ms)
        if isinstance(event, CallFinished | CallFailed | CallCancelled):
            self._unrouted.settle(event.call_id)
            self._orphans.settle(event.call_id)

    def recovered(self, now_ms: float) -> None:
        """Hear that no more such events come, for now."""
        for orphan in self._sessions.recovered(now_ms):
            self._orphans.add(orphan)

    def _start(self, request: StartSession, now_ms: float, reply: Reply | None) -> list[Out]:
        check_name(request.name, "name")
        ttl_ms = self._settings.ttl_s * 1000 if request.ttl_ms is None else request.ttl_ms
        if not (isfinite(ttl_ms) and 0 < ttl_ms <= self._settings.ttl_max_s * 1000):
            raise invalid(f"ttl_ms must be above 0 and at most {self._settings.ttl_max_s * 1000:.0f}.", param="ttl_ms")
        check_name(request.agent, "agent")
        session = Session(program_id=self._ids.program(asking(reply)), ttl_ms=ttl_ms, kind=request.agent or None)
        outs = self._open(session, request.name, BEGUN, now_ms)
        return [*outs, *answer(reply, SessionStarted(program_id=session.program_id, ttl_ms=ttl_ms))]

    def _open(self, session: Session, name: str, source: str, now_ms: float) -> list[Out]:
        """Begin a program and return what is to be said of it."""
        check_room_for_program(self._sessions, tenants.tenant_of(session.program_id), self._settings)
        session.expires_at_ms = now_ms + session.ttl_ms
        self._sessions.add(session)
        started = ProgramStarted(
            program_id=session.program_id,
            name=name,
            source=source,
            agent=session.kind or "",
            ttl_ms=session.ttl_ms,
            single_call=session.single_call,
            at_ms=now_ms,
        )
        return [announce(started)]

    def _touch(self, request: TouchSession, now_ms: float, reply: Reply | None) -> list[Out]:
        session = self._known(request.program_id, asking(reply))
        session.expires_at_ms = now_ms + session.ttl_ms
        return answer(reply, SessionTouched(program_id=session.program_id, ttl_ms=session.ttl_ms))

    def _end(self, request: EndSession, now_ms: float, reply: Reply | None) -> list[Out]:
        answered = answer(reply, SessionEnded(program_id=request.program_id))
        tenant = asking(reply)
        session = self._called(request.program_id, tenant)
        if session is None:
            return answered
        self._sessions.remove(session.program_id)
        return [
            *self._cancel_live(session),
            announce(ProgramEnded(program_id=session.program_id, at_ms=now_ms)),
            *answered,
        ]

    def _cancel(self, request: CancelCalls, reply: Reply | None) -> list[Out]:
        if not (request.call_id or request.program_id):
            raise invalid("Name a call_id or a program_id.", param="call_id")
        check_name(request.call_id or "", "call_id")
        tenant = asking(reply)
        orders = [] if tenant else [Out(subjects.CALL_CANCEL, request)]  # who runs it all may know what we do not
        if request.call_id:
            owner = self._sessions.of_call(request.call_id)
            if owner and tenants.may(tenant, owner.program_id):
                self._orphans.add(Orphan(request.call_id, owner.program_id, owner.live[request.call_id]))
                self._unrouted.cancel(request.call_id)
                orders = [Out(subjects.CALL_CANCEL, request)]
        elif request.program_id and (session := self._get(request.program_id, tenant)):
            orders = self._cancel_live(session)
        return [*orders, *answer(reply, CancelAccepted())]

    def _cancel_live(self, session: Session) -> list[Out]:
        """Return the orders to cancel each live call by its own id: some are on their way, and later ones must live."""
        for call_id, thread_id in session.live.items():
            self._orphans.add(Orphan(call_id, session.program_id, thread_id))
            self._unrouted.cancel(call_id)
        orders = [CancelCalls(call_id=call_id, program_id=session.program_id) for call_id in session.live]
        return [Out(subjects.CALL_CANCEL, order) for order in orders]

    def _submit(self, request: SubmitCall, now_ms: float, reply: Reply | None) -> list[Out]:
        if reply is None:  # nobody would hear the answer
            return []
        asked, text = check(request.api, request.body)
        check_call(request, text, self._settings)
        if request.durable:
            return hand_on(request, now_ms, reply)
        outs: list[Out] = []
        session = self._live_one(request, reply.tenant)
        check_room_for_call(self._sessions, session, reply.tenant, self._settings)
        if session is None:
            session, outs = self._begin(request, reply.tenant, now_ms)
        call = Call(
            call_id=self._ids.call(),
            program_id=session.program_id,
            thread_id=request.thread_id or session.idle_thread(),
            parents=request.parents,
            api=request.api,
            model=asked.model or "",
            body=self._ids.into(text, session.program_id) if request.api == RESPONSES else text,
            stream=bool(asked.stream),
            reply_to=reply.subject,
            reply_json=reply.as_json,
            arrival_at_ms=now_ms,
            deadline_at_ms=None if request.deadline_ms is None else now_ms + request.deadline_ms,
            trace=reply.trace,
        )
        if session.kind is None and (request.agent or generates(request.api)):
            session.kind = request.agent or kind_of(asked)
        self._sessions.begin(session, call.call_id, call.thread_id)
        # first: everything else may come later
        passed_on = Out(subjects.CALL_SUBMITTED, SubmittedCall(call=call, kind=session.kind or ""))
        self._unrouted.add(call, passed_on)
        session.expires_at_ms = now_ms + session.ttl_ms
        return [
            *outs,
            passed_on,
            *answer(reply, Accepted(call_id=call.call_id, program_id=call.program_id, thread_id=call.thread_id)),
            announce(_submitted(call)),
        ]

    def _live_one(self, request: SubmitCall, tenant: str) -> Session | None:
        """Return the program that a call belongs to, None if it is to begin one."""
        if request.program_id:
            return self._known(request.program_id, tenant)
        return self._called(request.session or "", tenant) if is_named(request) else None

    def _begin(self, request: SubmitCall, tenant: str, now_ms: float) -> tuple[Session, list[Out]]:
        """Begin the program that a call is the first of, and return what is to be said of it."""
        named = is_named(request)
        session = Session(
            program_id=self._ids.named(request.session or "", tenant) if named else self._ids.program(tenant),
            ttl_ms=self._settings.ttl_s * 1000,
            kind=request.agent or None,
            single_call=not named,
        )
        # what told whose it is becomes a label, so clients cannot make names for it up
        source = request.source if request.source in SOURCES else ("session" if named else NOBODY)
        return session, self._open(session, (request.session or "") if named else "", source, now_ms)

    def _called(self, name: str, tenant: str) -> Session | None:
        """Return the program that its client calls so, or else that has this id."""
        return self._sessions.get(self._ids.named(name, tenant)) or self._get(ProgramId(name), tenant)

    def _get(self, program_id: ProgramId, tenant: str) -> Session | None:
        return self._sessions.get(program_id) if tenants.may(tenant, program_id) else None

    def _known(self, program_id: ProgramId, tenant: str) -> Session:
        session = self._get(program_id, tenant)
        if session is None:
            text = f"No live program {program_id[:64]!r}: it was never started, has ended or has expired."
            raise invalid(text, param="program_id", code="program_not_found", status=404)
        return session

    def _call_ended(self, event: CallFinished | CallFailed | CallCancelled, now_ms: float) -> list[Out]:
        self._unrouted.settle(event.call_id)
        self._orphans.settle(event.call_id)
        session = self._sessions.end(event.program_id, event.call_id)
        if session is None:
            return []
        session.expires_at_ms = now_ms + session.ttl_ms
        if not session.single_call:
            return []
        self._sessions.remove(session.program_id)
        return [announce(ProgramEnded(program_id=session.program_id, at_ms=now_ms))]


def _submitted(call: Call) -> CallSubmitted:
    return CallSubmitted(
        call_id=call.call_id,
        program_id=call.program_id,
        thread_id=call.thread_id,
        at_ms=call.arrival_at_ms,
        parents=call.parents,
        api=call.api,
        model=call.model,
    )
