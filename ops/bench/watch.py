"""What the processes of a stack take: memory and processor time, as the kernel counts them."""

import os
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import NamedTuple

MIB = 2**20
HOUR_S = 3600.0
TICKS_S = os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """One look."""

    at_s: float
    mib: float


def resident_mib(pid: int) -> float:
    """Return how much memory a process holds; 0 for one that is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def processor_s(pid: int) -> float:
    """Return how long a process has run, in the kernel and out of it; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def size_mib(folder: Path) -> float:
    """Return how much the files below a folder take."""
    sizes = 0
    for path in folder.rglob("*"):
        try:
            sizes += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # it was taken away meanwhile
    return sizes / MIB


def growth_mib_h(samples: Iterable[Sample]) -> float:
    """Return how fast memory grows, in MiB an hour: the median slope of all pairs (Theil and Sen).

    A single spike, or a collector that frees now and then, does not move it.
    """
    slopes = [
        (after.mib - before.mib) / (after.at_s - before.at_s) * HOUR_S
        for before, after in combinations(samples, 2)
        if after.at_s > before.at_s
    ]
    return median(slopes) if slopes else 0.0


def last_third(samples: list[Sample]) -> list[Sample]:
    """Return the samples of the last third of a run: by then what is bounded is full."""
    if not samples:
        return []
    from_s = samples[0].at_s + (samples[-1].at_s - samples[0].at_s) * 2 / 3
    return [sample for sample in samples if sample.at_s >= from_s]
