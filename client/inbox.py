"""Where the frames of one call arrive."""

import asyncio
from typing import TypeVar

from autellix.client.errors import CallFailedError, failure
from autellix.schemas.codec import FRAMES, Decoder, MalformedMessageError
from autellix.schemas.frames import Failed, Finished
from autellix.schemas.messages import Frame
from autellix.schemas.stream import FrameOrder

FRAMES_MAX = 4096
"""Frames that may wait for a slow reader; a call that exceeds it fails."""

T = TypeVar("T")


class Inbox:
    """The frames of one call, in order, judged by the rules of the stream.

    Attributes:
        subject: Where the services send them.
        over: Whether the services have ended the call, so that nothing of it runs any more.
        closed: Whether nothing more is taken in.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.over = False
        self._arrived: asyncio.Queue[bytes | CallFailedError] = asyncio.Queue()
        self.closed = False
        self._order = FrameOrder()

    def put(self, data: bytes) -> None:
        """Take in a frame; one too many ends the stream with an error."""
        if self._arrived.qsize() >= FRAMES_MAX:
            self.end(failure(502, f"The reader fell {FRAMES_MAX} frames behind.", "slow_reader"))
        elif not self.closed:
            self._arrived.put_nowait(data)

    def end(self, error: CallFailedError) -> None:
        """Take in nothing more: the reader gets what has arrived, then `error`."""
        if not self.closed:
            self.closed = True
            self._arrived.put_nowait(error)

    async def next(self) -> Frame:
        """Return the next frame that a reader should see.

        Raises:
            CallFailedError: when the call failed, or part of its answer was lost.
        """
        while True:
            arrived = await self._arrived.get()
            if isinstance(arrived, CallFailedError):
                self._arrived.put_nowait(arrived)  # whoever asks again hears the same
                raise arrived
            sent = decode(FRAMES, arrived)
            self.over |= isinstance(sent, Finished | Failed)
            seen = self._order.admit(sent)
            if isinstance(seen, Failed):
                self.end(CallFailedError(seen))
            elif seen is not None:
                return seen


def decode(decoder: Decoder[T], data: bytes) -> T:
    """Return the message in `data`.

    Raises:
        CallFailedError: when a service sent something else.
    """
    try:
        return decoder.decode(data)
    except MalformedMessageError as error:
        raise failure(502, f"A service answered with something else than expected: {error}", "malformed") from error
