"""The rules of a call's stream, on a bus in memory."""

from __future__ import annotations

from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import Accepted, CallFinished, Chunk, Failed, Finished
from autellix.services.gateway import failures
from autellix.services.gateway.streams import PARTS_MAX, CallStream, Inbox
from autellix.services.memory_bus import MemoryBus, MemoryHub

CALL = CallId("call-1")
ACCEPTED = Accepted(call_id=CALL, program_id=ProgramId("p"), thread_id=ThreadId("main"))


def chunk(seq: int) -> Chunk:
    """Return a part with one object."""
    return Chunk(call_id=CALL, seq=seq, data=[seq])


def finished(seq: int) -> Finished:
    """Return the last frame of an answered call."""
    end = CallFinished(
        call_id=CALL, program_id=ProgramId("p"), thread_id=ThreadId("main"), at_ms=1.0, arrival_at_ms=0.0
    )
    return Finished(call_id=CALL, seq=seq, call=end)


async def codes(stream: CallStream) -> list[str | int | None]:
    """Return the parts that wait: numbers of chunks, codes of failures, `end`."""
    found: list[str | int | None] = []
    while part := await stream.next(0.001):
        match part:
            case Chunk():
                found.append(part.seq)
            case Failed():
                found.append(part.error.code)
            case Finished():
                found.append("end")
    return found


async def test_frames_in_order() -> None:
    """The reader sees the chunks and the end; the call is then over and there is nothing to cancel."""
    stream = CallStream()
    for frame in (ACCEPTED, chunk(1), chunk(2), finished(3)):
        stream.put(frame)

    assert await codes(stream) == [1, 2, "end"]
    assert stream.over
    assert not stream.broken


async def test_backlog_is_bounded() -> None:
    """A reader that is behind keeps what was kept for it, then gets an error; the call runs on, to be cancelled."""
    stream = CallStream()
    for seq in range(1, PARTS_MAX + 100):
        stream.put(chunk(seq))

    assert stream.broken
    assert await codes(stream) == [*range(1, PARTS_MAX + 1), "slow_reader"]


async def test_end_fits_a_full_backlog() -> None:
    """The end of a call is never refused for want of room."""
    stream = CallStream()
    for seq in range(1, PARTS_MAX + 1):
        stream.put(chunk(seq))
    stream.put(finished(PARTS_MAX + 1))

    assert not stream.broken
    assert (await codes(stream))[-1] == "end"


async def test_one_end() -> None:
    """Whatever comes after the end is not shown, from the pipeline or from here."""
    stream = CallStream()
    stream.fail(failures.BUS_LOST)
    stream.fail(failures.STOPPING)
    stream.put(chunk(1))
    stream.put(finished(2))

    assert await codes(stream) == ["bus_lost"]


async def test_inbox_is_empty_after_its_calls() -> None:
    """A call leaves nothing behind in the inbox, whether it was read to its end or left."""
    async with Inbox(MemoryBus(MemoryHub())) as inbox:
        async with inbox.submit(b"") as stream:
            stream.fail(failures.STOPPING)
            during = inbox.open_calls
        async with inbox.submit(b""):
            pass

    assert during == 1
    assert inbox.open_calls == 0


async def test_open_calls_are_bounded() -> None:
    """A call beyond as many as may be open is refused, and one that ended makes room."""
    async with Inbox(MemoryBus(MemoryHub()), calls_max=1) as inbox:
        async with inbox.submit(b""), inbox.submit(b"") as second:
            refused = await codes(second)
        async with inbox.submit(b"") as third:
            taken = await codes(third)

    assert refused == ["too_many_calls"]
    assert taken == []
