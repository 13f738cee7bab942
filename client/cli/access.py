"""`autellix access`: the keys that NATS and the gateway ask for."""

import argparse
import os
from typing import TYPE_CHECKING

from autellix.client.cli.sim import NEVER
from autellix.client.plan import service_command

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = "make the keys that NATS and the gateway ask for"
    parser = verbs.add_parser("access", help=text, prefix_chars=NEVER, add_help=False)
    parser.add_argument("arguments", nargs="*")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replace this process by the one that makes them."""
    command = service_command("access", arguments.arguments)
    os.execv(command[0], command)  # noqa: S606 - this Python, no shell
