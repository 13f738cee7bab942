"""`python -m autellix.services.simulator`: the verbs of `autellix sim`."""

import argparse
import sys

from autellix.services.simulator import run
from autellix.services.simulator.faults import command as faults
from autellix.services.simulator.figures import command

VERBS = (run, faults, command)


def main() -> int:
    """Run one verb and return the exit status; what makes no sense is one sentence on stderr and status 2."""
    parser = argparse.ArgumentParser(prog="autellix sim", description="The whole product in virtual time.")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add(verbs)
    arguments = parser.parse_args()
    try:
        status: int | None = arguments.run(arguments)
    except (ValueError, OSError) as error:
        print(f"autellix sim: {error}", file=sys.stderr)  # noqa: T201 - this command talks to a person
        return 2
    return status or 0


if __name__ == "__main__":
    sys.exit(main())
