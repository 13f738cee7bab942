"""`python -m autellix.services.metrics`."""

import os
from contextlib import AbstractAsyncContextManager

from autellix.services.command_line import from_command_line
from autellix.services.metrics.app import metrics
from autellix.services.missed import Missed
from autellix.services.nats_bus import NatsBus
from autellix.services.process import run_process
from autellix.services.web import WebServer

NICE = 5
"""Counting may come a little later; where cores are few, calls should not wait for it."""


def main() -> None:
    """Run the metrics service until told to stop."""
    settings = from_command_line("metrics")

    def application(bus: NatsBus) -> AbstractAsyncContextManager[WebServer]:
        return metrics(
            bus,
            settings.metrics,
            silence_s=settings.load_balancer.engine_silence_s,
            missed=Missed(bus, "autellix.events.>"),
        )

    os.nice(NICE)
    run_process("metrics", settings.nats, settings.log.level, application)


if __name__ == "__main__":
    main()
