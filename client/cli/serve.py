"""`autellix serve`: become one service."""

import argparse
import os
from typing import TYPE_CHECKING

from autellix.client.cli.options import add_settings
from autellix.client.plan import SERVICES, service_command

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    parser = verbs.add_parser("serve", help="run one service", description="Run one service in this process.")
    parser.add_argument("name", choices=SERVICES, metavar="NAME", help=", ".join(SERVICES))
    add_settings(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replace this process by the service's."""
    config = ["--config", str(arguments.config)] if arguments.config else []
    settings = [part for setting in arguments.overrides for part in ("--set", setting)]
    command = service_command(arguments.name, [*config, *settings])
    os.execv(command[0], command)  # noqa: S606 - this Python, no shell
