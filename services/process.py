"""The life of every service process: wait for NATS, start, say ready, work until SIGTERM, drain, leave."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog
import uvloop

from autellix.schemas.nats_access import Access
from autellix.services import logs, notify, tracing
from autellix.services.bus import BusDownError
from autellix.services.config import NatsSettings, StartError
from autellix.services.lease import LostLeaseError
from autellix.services.nats_bus import NatsBus, connect

log = structlog.get_logger()

VERSION = "0.1.0"
Application = Callable[[NatsBus], AbstractAsyncContextManager[Any]]


class StopSignal:
    """SIGTERM or SIGINT, waited for; entering installs the handlers."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def __enter__(self) -> Self:
        """Catch the signals."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self.event.set)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(name)


async def live(name: str, nats: NatsSettings, application: Application) -> None:
    """Live the life of a service process until it is told to stop: at once while it starts, else by draining."""
    with StopSignal() as stop:
        ready = asyncio.Event()
        life = asyncio.create_task(_serve(name, nats, application, ready, stop.event))
        stopping = asyncio.create_task(stop.event.wait())
        await asyncio.wait({life, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ready.is_set():
            life.cancel()
        await asyncio.wait({life})
    if not life.cancelled():
        life.result()
    log.info("stopped")


async def _serve(
    name: str, nats: NatsSettings, application: Application, ready: asyncio.Event, stop: asyncio.Event
) -> None:
    """Wait for NATS, start, say ready, work until `stop`, drain."""
    log.info("waiting for nats", url=nats.url)
    nkey = str(Path(nats.nkeys) / f"{name}.nk") if nats.nkeys else ""
    access = Access(nkey, nats.ca, nats.certificate, nats.certificate_key)
    bus = await connect(nats.url, name=name, access=access)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        await stack.enter_async_context(application(bus))
        await bus.announce(f"autellix-{name}", VERSION)
        await bus.flush()
        ready.set()
        notify.notify("READY=1")
        log.info("ready")
        await _until(stop, bus)
        notify.notify("STOPPING=1")
        log.info("draining")


async def _until(stop: asyncio.Event, bus: NatsBus) -> None:
    """Return when it is time to stop.

    Raises:
        BusDownError: when the bus is lost: to live on would be to wait for nothing.
    """
    stopping, losing = asyncio.create_task(stop.wait()), asyncio.create_task(bus.lost())
    await asyncio.wait({stopping, losing}, return_when=asyncio.FIRST_COMPLETED)
    for task in (stopping, losing):
        task.cancel()
    if not stop.is_set():
        raise BusDownError(await losing)


def run_process(name: str, nats: NatsSettings, log_level: str, application: Application) -> None:
    """Run a service process and return when it has drained; one that fails is one log line and status 1."""
    logs.setup(name, log_level)
    try:
        tracing.setup(name)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(live(name, nats, application))
    except StartError as error:
        log.error("cannot start", error=str(error))  # noqa: TRY400 - the text says it all
        sys.exit(1)
    except LostLeaseError as error:
        log.error("stood down", error=str(error))  # noqa: TRY400 - the same
        sys.exit(1)
    except Exception as error:
        log.exception("failed", error=repr(error))
        sys.exit(1)
    finally:
        tracing.close()
