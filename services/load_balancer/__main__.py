"""`python -m autellix.services.load_balancer`."""

import random

from autellix.services.command_line import from_command_line
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.load_balancer.listens import LISTENS
from autellix.services.runner import CoreRunner, run_process


def main() -> None:
    """Run the load balancer until told to stop."""
    settings = from_command_line("load-balancer")
    core = LoadBalancer(settings.load_balancer, random.SystemRandom())
    run_process("load-balancer", settings.nats.url, settings.log.level, lambda bus: CoreRunner(bus, core, LISTENS))


if __name__ == "__main__":
    main()
