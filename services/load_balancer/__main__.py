"""`python -m autellix.services.load_balancer`."""

import random

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_ENDS, ENGINE_EVENTS, PROGRAM_EVENTS, Decoder
from autellix.schemas.messages import AdmittedCall, ListEngines
from autellix.services.command_line import from_command_line
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.runner import CoreRunner, Listen, run_process

GROUP = "load-balancer"

LISTENS = (
    *(Listen(subject, CALL_ENDS) for subject in subjects.CALL_ENDS),
    Listen(subjects.ENGINE_EVENTS, ENGINE_EVENTS),
    Listen(subjects.PROGRAM_EVENTS, PROGRAM_EVENTS),
    Listen(subjects.CALL_ADMITTED, Decoder(AdmittedCall), GROUP),
    Listen(subjects.ENGINES_LIST, Decoder(ListEngines), GROUP, answered=True),
)


def main() -> None:
    """Run the load balancer until told to stop."""
    settings = from_command_line("load-balancer")
    core = LoadBalancer(settings.load_balancer, random.SystemRandom())
    run_process("load-balancer", settings.nats.url, settings.log.level, lambda bus: CoreRunner(bus, core, LISTENS))


if __name__ == "__main__":
    main()
