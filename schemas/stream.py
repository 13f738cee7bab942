"""The rules of a call's frames, without I/O: numbered without gaps, and exactly one end.

A gap means that the bus dropped a frame (a slow consumer): the stream is then an error, never a shorter answer.
"""

from autellix.schemas.base import ErrorBody
from autellix.schemas.messages import Accepted, Chunk, Failed, Finished, Frame


class FrameOrder:
    """Judges the frames of one call as they come."""

    def __init__(self) -> None:
        self._next_seq = 1
        self.ended = False

    def admit(self, frame: Frame) -> Frame | None:
        """Return what the reader should see for `frame`: itself, an error in its place, or None for a stale copy."""
        if self.ended:
            return None
        match frame:
            case Accepted():
                return frame
            case Chunk() | Finished():
                seen = self._in_order(frame)
            case Failed():
                seen = frame
        self.ended = isinstance(seen, Finished | Failed)
        return seen

    def _in_order(self, frame: Chunk | Finished) -> Frame | None:
        if frame.seq < self._next_seq:
            return None
        if frame.seq > self._next_seq:
            return lost_frames(frame)
        self._next_seq += 1
        return frame


def lost_frames(frame: Chunk | Finished) -> Failed:
    """Return the failure that stands for frames the bus dropped."""
    error = ErrorBody(message="Part of the answer was lost on the bus.", type="server_error", code="lost_frames")
    return Failed(status=502, error=error, call_id=frame.call_id)
