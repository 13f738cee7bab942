"""The options that several verbs share."""

import argparse
import os
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it


def add_nats_url(parser: argparse.ArgumentParser) -> None:
    """Let the verb be told where NATS is."""
    parser.add_argument(
        "--nats-url", metavar="URL", help="the NATS server; else AUTELLIX_NATS_URL, else nats://127.0.0.1:4222"
    )


DEFAULT_GATEWAY = "http://127.0.0.1:8000"


def add_gateway_url(parser: argparse.ArgumentParser) -> None:
    """Let the verb be told where a gateway is."""
    parser.add_argument("--url", help=f"the gateway; else AUTELLIX_URL, else {DEFAULT_GATEWAY}")


def gateway_url(given: str | None) -> str:
    """Return where the gateway is, without a slash at the end."""
    return (given or os.environ.get("AUTELLIX_URL") or DEFAULT_GATEWAY).rstrip("/")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Let the verb be told the settings of services."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="the settings of the services (autellix.toml)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="TABLE.KEY=VALUE", dest="overrides", help="one more setting"
    )


def seconds(text: str) -> float:
    """Return the number of seconds that `text` says: more than 0, and an end to them."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise argparse.ArgumentTypeError(f"a number of seconds, not {text!r}")
    return value


def count(text: str) -> int:
    """Return the number that `text` says, which is at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {text!r}")
    return int(text)
