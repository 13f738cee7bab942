"""The command line that every service has: a configuration file, and single settings over it."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from autellix.services.config import Config, ConfigError, load


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def from_command_line(service: str, argv: Sequence[str] | None = None) -> Config:
    """Return the settings that a service's command line asks for; a wrong one ends the process with status 2."""
    parser = Parser(prog=f"autellix serve {service}")
    parser.add_argument("--config", type=Path, default=os.environ.get("AUTELLIX_CONFIG") or None)
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", dest="overrides")
    args = parser.parse_args(argv)
    try:
        return load(args.config and Path(args.config), args.overrides)
    except ConfigError as error:
        parser.error(str(error))
