"""The rules of a call's frames: in order, without gaps, one end."""

from hypothesis import given
from hypothesis import strategies as st

from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import Accepted, CallFinished, Chunk, Failed, Finished, Frame
from autellix.schemas.stream import FrameOrder

CALL = CallId("call-1")
ACCEPTED = Accepted(call_id=CALL, program_id=ProgramId("p"), thread_id=ThreadId("main"))
FAILED = Failed(status=500, error=ErrorBody(message="it broke", type="server_error"), call_id=CALL)


def chunk(seq: int) -> Chunk:
    """Return a part of an answer."""
    return Chunk(call_id=CALL, seq=seq, data=[seq])


def finished(seq: int) -> Finished:
    """Return the last frame of an answered call."""
    end = CallFinished(
        call_id=CALL, program_id=ProgramId("p"), thread_id=ThreadId("main"), at_ms=1.0, arrival_at_ms=0.0
    )
    return Finished(call_id=CALL, seq=seq, call=end)


def seen(*frames: Frame) -> list[Frame | None]:
    """Return what a reader sees of these frames."""
    order = FrameOrder()
    return [order.admit(frame) for frame in frames]


def test_whole_stream() -> None:
    """Frames in order are seen as they are."""
    frames: list[Frame] = [ACCEPTED, chunk(1), chunk(2), finished(3)]

    assert frames == seen(*frames)


def test_lost_chunk() -> None:
    """A gap is an error in the place of the frame after it, and nothing is seen after that."""
    first, lost, *rest = seen(chunk(1), chunk(3), chunk(4), finished(5))

    assert first == chunk(1)
    assert isinstance(lost, Failed)
    assert (lost.status, lost.error.code, lost.call_id, lost.retry_safe) == (502, "lost_frames", CALL, False)
    assert rest == [None, None]


def test_lost_end_of_a_stream() -> None:
    """A last frame whose number says that chunks are missing is not success."""
    assert isinstance(seen(chunk(1), finished(3))[1], Failed)


def test_frame_twice() -> None:
    """A frame that came before is not seen again."""
    assert seen(chunk(1), chunk(1), chunk(2), chunk(1), finished(3)) == [chunk(1), None, chunk(2), None, finished(3)]


def test_one_end() -> None:
    """After an end nothing is seen, not even an acceptance that comes late."""
    assert seen(finished(1), finished(1), FAILED, ACCEPTED) == [finished(1), None, None, None]
    assert seen(FAILED, chunk(1), finished(2)) == [FAILED, None, None]


def test_failure_ends_at_any_point() -> None:
    """A failure has no number and may come at any time."""
    assert seen(chunk(1), FAILED) == [chunk(1), FAILED]


frames = st.one_of(
    st.just(ACCEPTED), st.just(FAILED), st.builds(chunk, st.integers(-1, 6)), st.builds(finished, st.integers(-1, 6))
)


@given(st.lists(frames, max_size=15))
def test_any_frames(arrived: list[Frame]) -> None:
    """Whatever arrives, the reader sees chunks numbered from 1 without gaps, at most one end, and nothing after it."""
    order = FrameOrder()
    admitted = [frame for frame in map(order.admit, arrived) if frame is not None]
    numbers = [frame.seq for frame in admitted if isinstance(frame, Chunk)]
    ends = [index for index, frame in enumerate(admitted) if isinstance(frame, Finished | Failed)]

    assert numbers == list(range(1, len(numbers) + 1))
    assert ends in ([], [len(admitted) - 1])
    assert order.ended == bool(ends)
