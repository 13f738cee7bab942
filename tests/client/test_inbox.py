"""The inbox of a call: bounded, ordered, and with one end."""

import pytest

from autellix.client.errors import CallFailedError, failure
from autellix.client.inbox import FRAMES_MAX, Inbox
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import encode
from autellix.schemas.ids import CallId
from autellix.schemas.messages import Chunk, Failed


def chunk(seq: int) -> bytes:
    """Return an encoded chunk."""
    return encode(Chunk(call_id=CallId("c"), seq=seq, data=[]))


async def test_slow_reader_gets_what_it_has_and_then_an_error() -> None:
    """Frames beyond the bound are not kept: the reader learns of it after those it has."""
    inbox = Inbox("s")
    for seq in range(1, FRAMES_MAX + 3):
        inbox.put(chunk(seq))

    for _ in range(FRAMES_MAX):
        assert isinstance(await inbox.next(), Chunk)
    with pytest.raises(CallFailedError, match="behind") as failed:
        await inbox.next()

    assert failed.value.error.code == "slow_reader"
    assert not inbox.over


async def test_end_is_final() -> None:
    """After its end an inbox takes in nothing, and gives every reader the same error."""
    inbox = Inbox("s")
    inbox.end(failure(503, "first", "x"))
    inbox.end(failure(503, "second", "x"))
    inbox.put(chunk(1))

    for _ in range(2):
        with pytest.raises(CallFailedError, match="first"):
            await inbox.next()


async def test_failed_frame_is_the_services_end_of_the_call() -> None:
    """A failure that the services sent means that nothing of the call runs any more."""
    inbox = Inbox("s")
    inbox.put(encode(Failed(status=400, error=ErrorBody(message="no", type="t"))))

    with pytest.raises(CallFailedError, match="no"):
        await inbox.next()
    assert inbox.over


async def test_stale_copy_is_not_seen() -> None:
    """A frame that arrives twice is seen once."""
    inbox = Inbox("s")
    for seq in (1, 1, 2):
        inbox.put(chunk(seq))

    seen = [await inbox.next(), await inbox.next()]
    assert [frame.seq for frame in seen if isinstance(frame, Chunk)] == [1, 2]


async def test_nonsense_is_an_error_of_that_call() -> None:
    """Bytes that are no frame fail their call with a reason, and nothing else."""
    inbox = Inbox("s")
    inbox.put(b"\xc1")

    with pytest.raises(CallFailedError, match="something else than expected"):
        await inbox.next()
