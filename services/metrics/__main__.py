"""`python -m autellix.services.metrics`."""

from autellix.services.command_line import from_command_line
from autellix.services.metrics.app import metrics
from autellix.services.runner import run_process


def main() -> None:
    """Run the metrics service until told to stop."""
    settings = from_command_line()
    run_process("metrics", settings.nats.url, settings.log.level, lambda bus: metrics(bus, settings.metrics))


if __name__ == "__main__":
    main()
