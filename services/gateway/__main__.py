"""`python -m autellix.services.gateway`."""

from contextlib import AbstractAsyncContextManager

from autellix.services.bus import Bus
from autellix.services.command_line import from_command_line
from autellix.services.gateway.app import gateway
from autellix.services.process import run_process
from autellix.services.web import WebServer


def main() -> None:
    """Run the gateway until told to stop."""
    settings = from_command_line("gateway")

    def application(bus: Bus) -> AbstractAsyncContextManager[WebServer]:
        return gateway(bus, settings.gateway, silence_s=settings.load_balancer.engine_silence_s)

    run_process("gateway", settings.nats, settings.log.level, application)


if __name__ == "__main__":
    main()
