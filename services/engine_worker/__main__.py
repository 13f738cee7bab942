"""`python -m autellix.services.engine_worker`."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from autellix.services.bus import Bus
from autellix.services.command_line import from_command_line
from autellix.services.engine_worker.engines import executor_for
from autellix.services.engine_worker.shell import EngineWorker
from autellix.services.process import run_process


def main() -> None:
    """Run an engine worker until told to stop; end with status 1 when its engine died."""
    settings = from_command_line("engine-worker")
    structlog.contextvars.bind_contextvars(engine_id=settings.engine_worker.engine_id)
    died = []

    def on_gone() -> None:
        died.append(True)
        os.kill(os.getpid(), signal.SIGTERM)

    @asynccontextmanager
    async def application(bus: Bus) -> AsyncIterator[None]:
        async with (
            executor_for(settings.engine_worker) as executor,
            EngineWorker(
                bus,
                executor,
                settings.engine_worker,
                on_gone=on_gone,
                silence_s=settings.load_balancer.engine_silence_s,
            ),
        ):
            yield

    run_process("engine-worker", settings.nats, settings.log.level, application)
    sys.exit(1 if died else 0)


if __name__ == "__main__":
    main()
