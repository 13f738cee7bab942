"""Results say on what they were measured."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import pytest

from autellix.client.bench import machine


def test_processor_and_versions_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The processor's name, and of each package the version that is installed, under whichever name it came."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some CPU 3000\nprocessor\t: 1\nmodel name\t: Some CPU 3000\n")
    monkeypatch.setattr(machine, "CPUINFO", cpuinfo)
    gpu = tmp_path / "gpus" / "0000:01:00.0" / "information"
    gpu.parent.mkdir(parents=True)
    gpu.write_text("Model: \t\t Some GPU 9\nIRQ: \t\t 1\n")
    monkeypatch.setattr(machine, "GPUS", tmp_path / "gpus")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 4})
    monkeypatch.setattr(machine, "PACKAGES", {"Test": ("no-such-package", "pytest"), "Other": ("neither-this",)})

    told = machine.described()

    assert told.startswith(f"3 cores, Some CPU 3000, Some GPU 9; Test {version('pytest')}, Python 3.")


def test_a_machine_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a name of the processor its architecture is told."""
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "missing")
    monkeypatch.setattr(machine, "GPUS", tmp_path / "missing")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")

    assert "cores, riscv64; Autellix " in machine.described()
