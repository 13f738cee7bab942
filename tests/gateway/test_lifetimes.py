"""Who ends what: clients that hang up or stall, a bus that breaks, a gateway that stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from autellix.services.config import GatewaySettings
from autellix.services.gateway import streams
from autellix.services.gateway.app import gateway
from autellix.services.memory_bus import MemoryBus, MemoryHub
from autellix.services.web import ListenError

if TYPE_CHECKING:
    from tests.gateway.conftest import Front

STREAM = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


async def test_hang_up_of_a_plain_call(front: Front) -> None:
    """A client that leaves while it waits cancels its call at once."""
    asking, call = await front.ask()
    asking.cancel()
    order = await front.cancelled.get()
    await call.finish(1, {})

    assert order.call_id == "call-1"
    assert front.cancelled.empty()


async def test_hang_up_mid_stream(front: Front) -> None:
    """A client that leaves in the middle of a stream cancels its call at once."""
    asking, call = await front.ask(STREAM, stream=True)
    await call.chunk(1, {"n": 1})
    answer = await asking
    await answer.aclose()

    assert (await front.cancelled.get()).call_id == "call-1"


async def test_hang_up_before_acceptance(front: Front) -> None:
    """A call whose client left before it was accepted is cancelled when it is."""
    asking = asyncio.create_task(front.http.post("/v1/chat/completions", json=STREAM))
    call = await front.calls.get()
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    await call.accept()

    assert (await front.cancelled.get()).call_id == "call-1"


async def test_no_cancel_after_the_end(front: Front) -> None:
    """A call that ended is not cancelled, however its client leaves."""
    for _ in range(3):
        asking, call = await front.ask()
        await call.finish(1, {})
        await asking
    asking, _ = await front.ask()
    asking.cancel()
    await front.cancelled.get()

    assert front.cancelled.empty()


async def test_reader_too_slow(front: Front) -> None:
    """A client that does not read while the engine writes has its call cancelled when the bound is reached."""
    body = b'{"model":"tiny","stream":true}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    _, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=1024)
    writer.write(head + body)
    call = await front.calls.get()
    await call.accept()
    sent = 0
    while front.cancelled.empty() and sent < streams.PARTS_MAX * 3:
        sent += 1
        await call.chunk(sent, "x" * 16_384)
        await front.bus.flush()
    order = await front.cancelled.get()
    writer.close()
    await writer.wait_closed()

    assert order.call_id == "call-1"
    assert sent > streams.PARTS_MAX


async def test_stop_ends_late_calls(stoppable: tuple[Front, contextlib.AsyncExitStack]) -> None:
    """A gateway that stops lets calls end for as long as its drain lasts, then ends them with an error."""
    front, stack = stoppable
    asking, call = await front.ask(STREAM, stream=True)
    await call.chunk(1, {"n": 1})
    answer = await asking
    closing = asyncio.create_task(stack.aclose())
    text = (await answer.aread()).decode().replace(": queued\n\n", "")
    await closing

    assert text.startswith('data: {"n":1}\n\ndata: {"error":{"message":"The gateway is stopping."')
    assert text.endswith("data: [DONE]\n\n")
    assert (await front.cancelled.get()).call_id == "call-1"


async def test_stop_does_not_wait_for_who_does_not_read(stoppable: tuple[Front, contextlib.AsyncExitStack]) -> None:
    """A gateway that stops leaves a client that has ceased to read, within its bound, and cancels the call."""
    front, stack = stoppable
    body = b'{"model":"tiny","stream":true}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    _, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=1024)
    writer.write(head + body)
    call = await front.calls.get()
    await call.accept()
    for number in range(1, streams.PARTS_MAX // 2):
        await call.chunk(number, "x" * 16_384)
    async with asyncio.timeout(15):
        await stack.aclose()
        order = await front.cancelled.get()
    writer.close()

    assert order.call_id == "call-1"


async def test_stop_lets_calls_end(stoppable: tuple[Front, contextlib.AsyncExitStack]) -> None:
    """A call that ends within the drain of a stopping gateway is answered; a new one finds nobody listening."""
    front, stack = stoppable
    asking, call = await front.ask()
    closing = asyncio.create_task(stack.aclose())
    while await _listens(front.port):
        pass
    await call.finish(1, {"late": True})
    answer = await asking
    await closing

    assert answer.json() == {"late": True}


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_port_taken() -> None:
    """A port that another process has is an error that names it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1 port {port}"):
            async with gateway(MemoryBus(MemoryHub()), GatewaySettings(port=port), silence_s=5):
                pass


def test_service_that_cannot_start(nats_url: str) -> None:
    """A service that cannot listen ends with status 1 and says why in one line of its log, without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = ["--set", f"nats.url={nats_url}", "--set", f"gateway.port={port}"]
        command = [sys.executable, "-m", "autellix.services.gateway", *settings]
        ended = subprocess.run(command, capture_output=True, check=False, timeout=30)
    last = json.loads(ended.stdout.splitlines()[-1])

    assert (ended.returncode, ended.stderr) == (1, b"")
    assert (last["event"], last["level"]) == ("cannot start", "error")
    assert last["error"].startswith(f"cannot listen on 127.0.0.1 port {port}")
    assert "exception" not in last
