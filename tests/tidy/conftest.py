"""The files of the repository, as git sees them: what is committed or would be, and nothing that is ignored."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Return every file and link, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return sorted({Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()})


@pytest.fixture(scope="session")
def modules(files: list[Path]) -> dict[Path, str]:
    """Return the text of every Python file."""
    return {file: (ROOT / file).read_text() for file in files if file.suffix == ".py"}


@pytest.fixture(scope="session")
def texts(files: list[Path]) -> dict[Path, str]:
    """Return the text of every file that is text."""
    found = {}
    for file in files:
        if (ROOT / file).is_file():
            data = (ROOT / file).read_bytes()
            if b"\0" not in data:
                found[file] = data.decode()
    return found
