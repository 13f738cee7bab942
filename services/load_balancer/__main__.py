"""`python -m autellix.services.load_balancer`."""

import random

from autellix.services.bus import Bus
from autellix.services.command_line import from_command_line
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.load_balancer.listens import LISTENS
from autellix.services.process import run_process
from autellix.services.runner import CoreRunner, wall_ms


def main() -> None:
    """Run the load balancer until told to stop."""
    settings = from_command_line("load-balancer")

    def application(bus: Bus) -> CoreRunner:
        core = LoadBalancer(settings.load_balancer, random.SystemRandom(), began_at_ms=wall_ms())
        return CoreRunner(bus, core, LISTENS)

    run_process("load-balancer", settings.nats, settings.log.level, application)


if __name__ == "__main__":
    main()
