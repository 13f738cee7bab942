"""`autellix completion`: what makes a shell complete the command's words."""

import argparse
from typing import TYPE_CHECKING

import shtab

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = (
        "Print what makes a shell complete verbs, options and names. "
        'For bash: `eval "$(autellix completion bash)"`, for zsh: `autellix completion zsh > DIR/_autellix`, DIR being '
        "one of $fpath."
    )
    parser = verbs.add_parser("completion", help="complete words in a shell", description=text)
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the shell's code."""
    print(shtab.complete(arguments.parser, shell=arguments.shell))
    return 0
