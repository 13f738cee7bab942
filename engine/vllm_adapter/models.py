"""Prepares the two models that need no download, and leaves every other name to vLLM.

`smollm2-135m-instruct` is converted out of an installed package, `tiny` is made on the spot. A prepared model is a
folder in a cache, there as a whole or not at all: it is written beside its place and then moved there, by one process
at a time. `python -m autellix.engine.vllm_adapter.models NAME` prepares one and prints where it is.
"""

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import structlog

from autellix.engine.vllm_adapter import model_smollm2, model_tiny
from autellix.engine.vllm_adapter.model_smollm2 import ModelError

log = structlog.get_logger()

MODULE = "autellix.engine.vllm_adapter.models"
EDITION = 1
"""Part of the name of a prepared model's folder; raised when what is written changes."""

WRITERS: Mapping[str, Callable[[Path], None]] = {
    "smollm2-135m-instruct": model_smollm2.write,
    "tiny": model_tiny.write,
}
"""The built-in models, and what writes each into an empty folder."""


def resolve(name: str, folder: Path | None = None) -> str:
    """Return what to give vLLM as its model: a folder, prepared if need be, or `name` itself if it is not built in.

    A child process does the work: a conversion leaves threads and a gigabyte behind that a serving process should not
    carry into its forks.

    Args:
        name: A built-in model, or anything that vLLM loads by that name.
        folder: Where prepared models are kept; by default `cache_folder()`.

    Raises:
        ModelError: when a built-in model cannot be prepared.
    """
    if name not in WRITERS:
        return name
    target = _place(name, folder)
    if not target.is_dir():
        log.info("preparing model", model=name, folder=str(target))
        command = [sys.executable, "-m", MODULE, name, "--folder", str(target.parent)]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode:
            last_line = child.stderr.strip().rpartition("\n")[2]
            raise ModelError(last_line or f"preparing the model {name!r} ended with status {child.returncode}")
    return str(target)


def cache_folder() -> Path:
    """Return where prepared models are kept: `$AUTELLIX_MODELS`, or `autellix/models` in the user's cache."""
    if chosen := os.environ.get("AUTELLIX_MODELS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "autellix" / "models"


def _place(name: str, folder: Path | None) -> Path:
    return (folder or cache_folder()).absolute() / f"{name}-{EDITION}"


def prepare(name: str, folder: Path | None = None) -> Path:
    """Return the folder of a built-in model, after writing it in this process if it is not there.

    Raises:
        ModelError: when its source is not installed.
        OSError: when the cache cannot be written.
    """
    target = _place(name, folder)
    if target.is_dir():
        return target  # also from a cache that cannot be written
    target.parent.mkdir(parents=True, exist_ok=True)
    with _held(target.with_name(f"{target.name}.lock")):
        if not target.is_dir():
            partial = target.with_name(f"{target.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)  # what a killed process left
            partial.mkdir()
            WRITERS[name](partial)
            _open_to_read(partial)
            partial.rename(target)
    return target


def _open_to_read(folder: Path) -> None:
    """Let every user read the files: a cache may be filled by one and served by another."""
    for file in folder.iterdir():
        file.chmod(0o644)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock file; the kernel lets go of it when the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Prepare the model named on the command line, print its folder, and return the exit status."""
    parser = argparse.ArgumentParser(description="Prepare a built-in model and print its folder.")
    parser.add_argument("name", choices=sorted(WRITERS))
    parser.add_argument("--folder", type=Path, help="where prepared models are kept")
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"  # everything needed is installed; nothing may be looked up elsewhere
    try:
        sys.stdout.write(f"{prepare(arguments.name, arguments.folder)}\n")
    except (ModelError, OSError) as error:
        sys.stderr.write(f"the model {arguments.name!r} cannot be prepared: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
