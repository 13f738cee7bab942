"""The way to a server that `make chaos` cuts: what is swallowed comes late and whole, what is closed is closed."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from proxy import Proxy

from autellix.client.stack import free_port


@pytest.fixture
async def way() -> AsyncIterator[Proxy]:
    """Return a way to a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with Proxy(free_port(), server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
    server.close()


async def test_swallowed_bytes_come_once_it_is_healed(way: Proxy) -> None:
    """Nothing passes while the way is cut; afterwards all of it does, on the same connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
    writer.write(b"one")
    first = await asyncio.wait_for(reader.readexactly(3), 5)
    way.cut("swallow")
    writer.write(b"two")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    way.heal()
    second = await asyncio.wait_for(reader.readexactly(3), 5)
    writer.close()

    assert (first, second) == (b"one", b"two")


async def test_closed_way_takes_connections_when_it_is_healed(way: Proxy) -> None:
    """Who was connected is told so, new connections end at once, and later ones work."""

    async def said(text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
        try:
            writer.write(text)
            return await asyncio.wait_for(reader.read(100), 5)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
    writer.write(b"one")
    await asyncio.wait_for(reader.readexactly(3), 5)
    way.cut("close")
    with pytest.raises((ConnectionError, EOFError)):
        await asyncio.wait_for(reader.readexactly(1), 5)
    writer.close()
    meanwhile = await said(b"two")
    way.heal()

    assert (meanwhile, await said(b"three")) == (b"", b"three")
