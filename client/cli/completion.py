"""`autellix completion`: what makes a shell complete the command's words."""

import argparse
from pathlib import Path
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
    _name_files(arguments.parser)
    print(shtab.complete(arguments.parser, shell=arguments.shell))  # the name of one  # nosec B604
    return 0


def _name_files(parser: argparse.ArgumentParser) -> None:
    """Tell which arguments are files: where nothing is told, a shell would complete nothing."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public name for them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - nor for this
            for verb in action.choices.values():
                _name_files(verb)
        elif action.type is Path or action.metavar == "SCRIPT":
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
