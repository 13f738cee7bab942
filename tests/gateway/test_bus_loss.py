"""A NATS server that dies and comes back under a running gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.gateway.conftest import Front, OwnServer

STREAM = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


async def test_calls_end_clearly_when_the_bus_breaks(fragile: tuple[Front, OwnServer]) -> None:
    """Open calls end with an error, new ones are refused at once, and all is well when the server is back."""
    front, server = fragile
    streaming, call = await front.ask(STREAM, stream=True)
    await call.chunk(1, {"n": 1})
    streamed = await streaming
    waiting, _ = await front.ask()
    server.kill()
    text = (await streamed.aread()).decode()
    plain = await waiting
    refused = await front.http.post("/v1/chat/completions", json=STREAM)
    ready = await front.http.get("/ready")
    server.start()
    while (await front.http.get("/ready")).status_code != 200:
        await front.heartbeat("e0", "tiny")
    asking, call = await front.ask()
    await call.finish(1, {"fine": True})
    answer = await asking

    assert text.startswith('data: {"n":1}\n\ndata: {"error":')
    assert text.endswith("data: [DONE]\n\n")
    assert (plain.status_code, plain.json()["error"]["code"]) == (503, "bus_lost")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "bus_down")
    assert refused.headers["retry-after"] == "1"
    assert ready.json()["reason"] == "the message bus cannot be reached"
    assert answer.json() == {"fine": True}


async def test_a_short_break_is_not_missed(fragile: tuple[Front, OwnServer]) -> None:
    """A call that lived through a break so short that nobody looked meanwhile still ends with an error."""
    front, server = fragile
    waiting, _ = await front.ask()
    server.kill()
    server.start()
    plain = await waiting

    assert (plain.status_code, plain.json()["error"]["code"]) == (503, "bus_lost")
