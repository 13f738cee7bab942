"""`autellix sim`: the simulator."""

import argparse
import os
from typing import TYPE_CHECKING

from autellix.client.plan import service_command

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

NEVER = "\0"
"""With this as the mark of options nothing is one: all arguments, `--help` too, are the simulator's."""


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    parser = verbs.add_parser(
        "sim", help="simulate workloads and draw the paper's figures", prefix_chars=NEVER, add_help=False
    )
    parser.add_argument("arguments", nargs="*")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replace this process by the simulator."""
    command = service_command("simulator", arguments.arguments)
    os.execv(command[0], command)  # noqa: S606 - this Python, no shell
