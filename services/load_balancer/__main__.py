"""`python -m autellix.services.load_balancer`."""

import random

from autellix.schemas import subjects
from autellix.services.command_line import from_command_line
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.load_balancer.listens import LISTENS
from autellix.services.missed import Missed
from autellix.services.nats_bus import NatsBus
from autellix.services.process import run_process
from autellix.services.runner import CoreRunner, wall_ms


def main() -> None:
    """Run the load balancer until told to stop."""
    settings = from_command_line("load-balancer")

    def application(bus: NatsBus) -> CoreRunner:
        core = LoadBalancer(settings.load_balancer, random.SystemRandom(), began_at_ms=wall_ms())
        return CoreRunner(bus, core, LISTENS, missed=Missed(bus, subjects.CALL_EVENTS))

    run_process("load-balancer", settings.nats, settings.log.level, application)


if __name__ == "__main__":
    main()
