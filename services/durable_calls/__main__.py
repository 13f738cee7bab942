"""`python -m autellix.services.durable_calls`."""

from autellix.services.command_line import from_command_line
from autellix.services.durable_calls.service import DurableCallsService
from autellix.services.nats_bus import NatsBus
from autellix.services.process import run_process


def main() -> None:
    """Run the service until told to stop."""
    settings = from_command_line("durable-calls")

    def application(bus: NatsBus) -> DurableCallsService:
        return DurableCallsService(bus, settings.durable_calls)

    run_process("durable-calls", settings.nats, settings.log.level, application)


if __name__ == "__main__":
    main()
