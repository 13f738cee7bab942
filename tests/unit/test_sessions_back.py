"""Sessions after their manager died: from a snapshot, and from the events that were kept."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from autellix.schemas.codec import EVENTS, MalformedMessageError, encode
from autellix.schemas.ids import CallId
from autellix.schemas.messages import (
    CallCancelled,
    CallFailed,
    EndSession,
    Event,
    ProgramExpired,
    SessionStarted,
    StartSession,
    SubmitCall,
    SubmittedCall,
)
from autellix.services.config import SessionManagerSettings
from autellix.services.core import Out, Reply
from autellix.services.session_manager.core import SessionManager
from autellix.services.session_manager.orphans import PATIENCE_TICKS
from autellix.services.session_manager.sessions import EARLIER_MAX_MS

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "system", "content": "s"}]}
INBOX = Reply("_INBOX.1")
TTL_MS = SessionManagerSettings().ttl_s * 1000


class Life:
    """One life of a session manager, and the events that were kept of it."""

    def __init__(self) -> None:
        numbers = itertools.count(1)
        self.core = SessionManager(SessionManagerSettings(), new_id=lambda: f"id{next(numbers)}", secret=b"key")
        self.events: list[Event] = []

    def hear(self, message: Any) -> list[Any]:
        """Hand in a message, and return what is said."""
        outs = list(self.core.handle(message, 1000.0, INBOX))
        self._keep(outs)
        return [out.message for out in outs]

    def _keep(self, outs: Iterable[Out]) -> None:
        said = [out.message for out in outs if out.subject.startswith("autellix.events.")]
        self.events += [EVENTS.decode(encode(message)) for message in said]

    def submit(self, **fields: Any) -> SubmittedCall:
        """Submit a call and return it as it goes on."""
        (call,) = [said for said in self.hear(SubmitCall(body=BODY, **fields)) if isinstance(said, SubmittedCall)]
        return call

    def end(self, submitted: SubmittedCall) -> None:
        """Let a call end."""
        call = submitted.call
        known: dict[str, Any] = {"call_id": call.call_id, "program_id": call.program_id, "thread_id": call.thread_id}
        end = CallCancelled(**known, at_ms=2000.0, arrival_at_ms=1000.0)
        self.events.append(end)
        self._keep(self.core.handle(end, 2000.0))

    def again(self, how: str, *, now_ms: float = 5000.0) -> "Life":
        """Return the next life."""
        following = Life()
        if how == "snapshot":
            following.core.restore(self.core.snapshot(), now_ms)
        else:
            for event in self.events:
                following.core.recover(event, now_ms)
        following.core.recovered(now_ms)
        return following


WAYS = pytest.mark.parametrize("how", ["snapshot", "events"])


@WAYS
def test_programs_go_on(how: str) -> None:
    """Programs that were started, and those that their clients named, are the same afterwards; ended ones are gone."""
    life = Life()
    (started,) = [said for said in life.hear(StartSession(agent="coder")) if isinstance(said, SessionStarted)]
    named = life.submit(session="mine").call.program_id
    single = life.submit()
    life.end(single)
    following = life.again(how)
    call = following.submit(program_id=started.program_id)

    assert call.kind == "coder"
    assert following.submit(session="mine").call.program_id == named
    (refused,) = following.hear(SubmitCall(body=BODY, program_id=single.call.program_id))
    assert refused.status == 404


@WAYS
def test_calls_are_live_still(how: str) -> None:
    """A program whose call runs does not expire; it does when that has ended, in its time."""
    life = Life()
    running, over = life.submit(session="runs"), life.submit(session="over")
    life.end(over)
    following = life.again(how)
    expired = [out.message for out in following.core.tick(5000.0 + TTL_MS)]
    following.end(running)
    later = [out.message for out in following.core.tick(5001.0 + 3 * TTL_MS)]

    gone = [each.program_id for each in (*expired, *later) if isinstance(each, ProgramExpired)]
    assert gone == [over.call.program_id, running.call.program_id]


@WAYS
def test_whole_time_to_live(how: str) -> None:
    """Who was idle has its whole time again: what touched it meanwhile nobody heard."""
    life = Life()
    life.hear(StartSession())
    following = life.again(how, now_ms=1000.0 + TTL_MS)

    assert list(following.core.tick(2 * TTL_MS)) == []
    assert len(list(following.core.tick(1001.0 + 2 * TTL_MS))) == 1


def test_end_before_the_call() -> None:
    """Events of several services may be kept in another order: a call that ended is not live for ever."""
    life = Life()
    life.end(life.submit(session="mine"))
    life.events[-2:] = reversed(life.events[-2:])
    following = life.again("events")

    assert len(list(following.core.tick(5000.0 + TTL_MS))) == 1


def test_end_that_nobody_acted_upon() -> None:
    """A program of one call whose manager died between the call's end and its own is over at once."""
    life = Life()
    submitted = life.submit()
    life.end(submitted)
    life.events = [event for event in life.events if not type(event).__name__.startswith("ProgramEnd")]
    following = life.again("events")

    assert [type(out.message) for out in following.core.tick(5000.0)] == [ProgramExpired]


def test_events_twice() -> None:
    """What a snapshot and the events after it both know counts once."""
    life = Life()
    running = life.submit(session="mine")
    following = life.again("snapshot")
    for event in (*life.events, *life.events):
        following.core.recover(event, 5000.0)
    following.core.recovered(5000.0)
    following.end(running)

    assert len(list(following.core.tick(5001.0 + TTL_MS))) == 1
    assert following.core.snapshot() == Life().core.snapshot()


@WAYS
def test_call_that_nobody_has(how: str) -> None:
    """A call whose engine died with everything else ends after a while, and its program can expire."""
    life = Life()
    lost = life.submit(session="mine")
    following = life.again(how)
    early = list(following.core.tick(5000.0 + EARLIER_MAX_MS - 1))
    (event,) = [out.message for out in following.core.tick(5000.0 + EARLIER_MAX_MS)]
    assert isinstance(event, CallFailed)
    following.hear(event)
    gone = [out.message for out in following.core.tick(5000.0 + EARLIER_MAX_MS + 2 * TTL_MS)]

    assert early == []
    assert (event.call_id, event.error.code) == (lost.call.call_id, "end_lost")
    assert [type(each) for each in gone] == [ProgramExpired]


def test_no_snapshot() -> None:
    """Bytes that are none are refused, and nothing is known."""
    with pytest.raises(MalformedMessageError):
        Life().core.restore(b"\xc1", 0.0)


def test_unknown_programs() -> None:
    """Ends and calls of programs whose start is not kept any more change nothing."""
    life = Life()
    submitted = life.submit(session="mine")
    life.end(submitted)
    life.events = [event for event in life.events if type(event).__name__ != "ProgramStarted"]
    following = life.again("events")

    assert following.core.snapshot() == Life().core.snapshot()
    assert following.submit(session="mine").call.call_id != CallId("")


@WAYS
def test_call_of_a_program_that_is_over(how: str) -> None:
    """A call that was given up with its program, and that nobody has any more, ends in the next life, too, once."""
    life = Life()
    given_up, told = life.submit(session="mine"), life.submit(session="mine")
    life.hear(EndSession(program_id=given_up.call.program_id))
    life.end(told)
    following = life.again(how)
    said = [out.message for _ in range(2 * PATIENCE_TICKS) for out in following.core.tick(5000.0)]

    assert [given_up.call.call_id] == [each.call_id for each in said if isinstance(each, CallCancelled)]
