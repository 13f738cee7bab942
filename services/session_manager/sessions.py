"""The live programs, when each expires, and how they are brought back after the session manager died.

Rules of coming back:
* Who was live has its whole time to live again: what touched it meanwhile nobody heard.
* A call that ended is not live, in whatever order its events come.
* A call that was live and is not heard of for an hour has ended with whoever had it.
* A call that was live when its program ended, and has no end, is given up, and waited for.
* A program of one call whose end was heard, but not the program's own, is over now.

How many programs and calls are live is known for each tenant.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from autellix.schemas import tenants
from autellix.schemas.codec import Decoder
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import (
    CallCancelled,
    CallFailed,
    CallFinished,
    CallSubmitted,
    Event,
    Message,
    ProgramEnded,
    ProgramExpired,
    ProgramStarted,
)
from autellix.services.session_manager.orphans import Orphan

EARLIER_MAX_MS: Final = 3_600_000.0


class Session(msgspec.Struct, kw_only=True, eq=False):
    """One live program."""

    program_id: ProgramId
    ttl_ms: float
    expires_at_ms: float = 0.0
    single_call: bool = False
    kind: str | None = None
    """None until the client or the first call tells it."""
    live: dict[CallId, ThreadId] = {}

    def idle_thread(self) -> ThreadId:
        """Return a thread without a live call."""
        busy = set(self.live.values())
        names = itertools.chain(["main"], (f"t{number}" for number in itertools.count(2)))
        return next(ThreadId(name) for name in names if name not in busy)


class SessionsSnapshot(Message, tag="sessions_snapshot", frozen=True, kw_only=True):
    """All live programs."""

    sessions: list[Session]
    orphans: tuple[Orphan, ...] = ()
    """Calls that were given up and whose ends are not heard yet."""


_SNAPSHOTS: Decoder[SessionsSnapshot] = Decoder(SessionsSnapshot)


class Sessions:
    """The live programs by their ids."""

    def __init__(self) -> None:
        self._sessions: dict[ProgramId, Session] = {}
        self._expiry: list[tuple[float, int, Session]] = []
        self._numbers = itertools.count()
        self._owners: dict[CallId, ProgramId] = {}
        """The programs of the live calls."""
        self.programs_of: Counter[str] = Counter()
        """Live programs by tenant."""
        self.calls_of: Counter[str] = Counter()
        """Live calls by tenant, of live programs."""
        self._ended: set[CallId] = set()
        """While coming back: calls that ended."""
        self._given_up: dict[CallId, Orphan] = {}
        """While coming back: live calls of programs that are over."""
        self._earlier: dict[CallId, float] = {}
        """Calls that were live when it came back, and until when their end is waited for."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, program_id: ProgramId) -> Session | None:
        """Return a program that is live."""
        return self._sessions.get(program_id)

    def of_call(self, call_id: CallId) -> Session | None:
        """Return the program that a call is live in."""
        owner = self._owners.get(call_id)
        return self._sessions.get(owner) if owner else None

    @property
    def calls(self) -> int:
        """How many calls of live programs are live."""
        return len(self._owners)

    def add(self, session: Session) -> None:
        """Take in a program."""
        self.remove(session.program_id)
        self._sessions[session.program_id] = session
        tenant = tenants.tenant_of(session.program_id)
        self.programs_of[tenant] += 1
        self.calls_of[tenant] += len(session.live)
        self._owners |= dict.fromkeys(session.live, session.program_id)
        self._watch(session)

    def remove(self, program_id: ProgramId) -> Session | None:
        """Take out a program, and return it if it was there; its calls go on and count no more."""
        session = self._sessions.pop(program_id, None)
        if session:
            tenant = tenants.tenant_of(program_id)
            self.programs_of[tenant] -= 1
            self.calls_of[tenant] -= len(session.live)
            for call_id in session.live:
                del self._owners[call_id]
        return session

    def begin(self, session: Session, call_id: CallId, thread_id: ThreadId) -> None:
        """Take in a call of a live program."""
        if call_id not in session.live:
            self._owners[call_id] = session.program_id
            self.calls_of[tenants.tenant_of(session.program_id)] += 1
        session.live[call_id] = thread_id

    def end(self, program_id: ProgramId, call_id: CallId) -> Session | None:
        """Take out a call, and return its program if it was live in one."""
        session = self._sessions.get(program_id)
        if session is None or session.live.pop(call_id, None) is None:
            return None
        del self._owners[call_id]
        self.calls_of[tenants.tenant_of(program_id)] -= 1
        return session

    def expired(self, now_ms: float) -> Iterator[Session]:
        """Take out the programs that were idle for too long; one with a live call is not idle."""
        while self._expiry and self._expiry[0][0] <= now_ms:
            _, _, session = heapq.heappop(self._expiry)
            if not self._is_live(session):
                continue
            if session.live:
                session.expires_at_ms = now_ms + session.ttl_ms
            if session.expires_at_ms > now_ms:
                self._watch(session)
                continue
            self.remove(session.program_id)
            yield session

    def _watch(self, session: Session) -> None:
        heapq.heappush(self._expiry, (session.expires_at_ms, next(self._numbers), session))
        if len(self._expiry) > 64 + 2 * len(self._sessions):  # most are of sessions that ended
            self._expiry = [entry for entry in self._expiry if self._is_live(entry[2])]
            heapq.heapify(self._expiry)

    def _is_live(self, session: Session) -> bool:
        return self._sessions.get(session.program_id) is session

    # --- coming back

    def snapshot(self, orphans: Iterable[Orphan]) -> bytes:
        """Return all of it, and the calls that were given up."""
        known = SessionsSnapshot(sessions=list(self._sessions.values()), orphans=tuple(orphans))
        return msgspec.msgpack.encode(known)

    def restore(self, snapshot: bytes, now_ms: float) -> None:
        """Know what a snapshot says."""
        known = _SNAPSHOTS.decode(snapshot)
        for session in known.sessions:
            self._back(session, now_ms)
        self._given_up = {orphan.call_id: orphan for orphan in known.orphans}

    def recover(self, event: Event, now_ms: float) -> None:
        """Take in an event that happened meanwhile, or that is known."""
        match event:
            case ProgramStarted():
                self._started(event, now_ms)
            case ProgramEnded() | ProgramExpired():
                session = self.remove(event.program_id)
                for call_id, thread_id in session.live.items() if session else ():
                    self._given_up[call_id] = Orphan(call_id, event.program_id, thread_id)
            case CallSubmitted():
                session = self._sessions.get(event.program_id)
                if session and event.call_id not in self._ended:
                    self.begin(session, event.call_id, event.thread_id)
            case CallFinished() | CallFailed() | CallCancelled():
                self._ended.add(event.call_id)
                self._given_up.pop(event.call_id, None)
                session = self.end(event.program_id, event.call_id)
                if session and session.single_call:
                    session.expires_at_ms = now_ms
                    self._watch(session)

    def recovered(self, now_ms: float) -> Iterable[Orphan]:
        """Hear that no more such events come, for now; return the calls that were given up and have no end."""
        self._ended.clear()
        given_up, self._given_up = self._given_up, {}
        until_ms = now_ms + EARLIER_MAX_MS
        self._earlier = {call: until_ms for session in self._sessions.values() for call in session.live}
        return given_up.values()

    def never_heard_of(self, now_ms: float) -> Iterator[tuple[Session, CallId, ThreadId]]:
        """Return the calls of an earlier life that are not heard of for too long: whoever had them is gone, too."""
        if not self._earlier or min(self._earlier.values()) > now_ms:
            return
        late = {call_id for call_id, until_ms in self._earlier.items() if until_ms <= now_ms}
        for call_id in late:
            del self._earlier[call_id]
        for session in self._sessions.values():
            for call_id in late & session.live.keys():
                yield session, call_id, session.live[call_id]

    def _started(self, event: ProgramStarted, now_ms: float) -> None:
        if event.ttl_ms is None or event.program_id in self._sessions:
            return
        session = Session(
            program_id=event.program_id,
            ttl_ms=event.ttl_ms,
            single_call=event.single_call,
            kind=event.agent or None,
        )
        self._back(session, now_ms)

    def _back(self, session: Session, now_ms: float) -> None:
        session.expires_at_ms = now_ms + session.ttl_ms
        self.add(session)
