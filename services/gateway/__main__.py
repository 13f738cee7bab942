"""`python -m autellix.services.gateway`."""

from autellix.services.command_line import from_command_line
from autellix.services.gateway.app import gateway
from autellix.services.runner import run_process


def main() -> None:
    """Run the gateway until told to stop."""
    settings = from_command_line()
    run_process("gateway", settings.nats.url, settings.log.level, lambda bus: gateway(bus, settings.gateway))


if __name__ == "__main__":
    main()
