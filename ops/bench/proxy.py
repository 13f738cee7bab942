"""A TCP way to a server that can be cut and healed: a network that swallows packets, or that ends connections."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

Cut = Literal["swallow", "close"]
CUTS: tuple[Cut, ...] = ("swallow", "close")
READ_BYTES = 65536


class Proxy:
    """Such a way, `async with`.

    What is swallowed arrives late, once the way is healed, as it does by TCP: each end still sends it again.

    Attributes:
        port: Where it listens, on the loopback interface.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End every connection."""
        if self._server:
            self._server.close()
        self._end_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, how: Cut) -> None:
        """Forward nothing more, or end every connection and take no new one."""
        if how == "swallow":
            self._open.clear()
        else:
            self._refuses = True
            self._end_all()

    def heal(self) -> None:
        """Forward again, first what has come meanwhile."""
        self._refuses = False
        self._open.set()

    def _end_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            await self._open.wait()
            if not self._refuses:
                await self._forward(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward both ways until either end is gone."""
        with suppress(OSError):
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(to_server)
            pumps = [
                asyncio.create_task(self._pump(reader, to_server)),
                asyncio.create_task(self._pump(from_server, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                self._writers.discard(to_server)
                to_server.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(READ_BYTES):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
