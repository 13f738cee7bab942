"""Reads what benchmarks are set up by: TOML, of which every mistake is told by file and key."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from autellix.client.errors import AutellixError

T = TypeVar("T")

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.-]*\Z")]
"""May be part of a file's name."""


class SettingsError(AutellixError):
    """A file that a benchmark cannot be set up by; the text says where."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a file.

    Raises:
        SettingsError: when it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error


def converted(tree: Any, kind: type[T], where: str) -> T:
    """Return a table as what it describes.

    Raises:
        SettingsError: beginning with `where`, and naming the key that is unknown or has an unusable value.
    """
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        what, _, key = str(error).partition(" - at `$")
        raise SettingsError(f"{where}{key.rstrip('`')}: {what}") from error
