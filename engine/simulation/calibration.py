"""Reads calibrations: files that say how long an engine's steps take and what fits into it."""

import tomllib
from pathlib import Path

import msgspec

from autellix.engine.simulation.timing import Calibration

SHIPPED = Path(__file__).parent / "calibrations"


class CalibrationError(ValueError):
    """A calibration cannot be used; the text names the file and the key."""


def shipped() -> list[str]:
    """Return the names of the calibrations that come with Autellix."""
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def load_calibration(name: str) -> Calibration:
    """Return the calibration in a file `name` (one that ends in .toml) or the shipped one of that name.

    Raises:
        CalibrationError: when there is no such file or it makes no sense.
    """
    file = Path(name) if name.endswith(".toml") else SHIPPED / f"{name}.toml"
    try:
        return msgspec.convert(tomllib.loads(file.read_text()), Calibration)
    except OSError as error:
        raise CalibrationError(f"{file}: {error.strerror}; shipped are: {', '.join(shipped())}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{file}: {error}") from error
