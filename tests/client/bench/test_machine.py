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


def divided(monkeypatch: pytest.MonkeyPatch, count: int, *, bound: str | None = None) -> set[int]:
    """Return the cores that are left to this process of four, and set the environment."""
    cores = [{0, 1, 2, 5}]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, left: cores.append(set(left)))
    monkeypatch.setenv(machine.BIND, bound or "")
    if bound is None:
        monkeypatch.delenv(machine.BIND)
    machine.divide(count)
    return cores[-1]


def test_the_engine_gets_the_last_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else keeps off them, and results say so."""
    assert {0, 1} == divided(monkeypatch, 2)
    assert "2,5" == os.environ[machine.BIND]
    assert machine.described().startswith("2 cores and '2,5' for the engine, ")


@pytest.mark.parametrize("count", [0, 4])
def test_nobody_is_left_without_a_core(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """None asked for, or none left: everybody uses all."""
    assert {0, 1, 2, 5} == divided(monkeypatch, count)
    assert machine.BIND not in os.environ


def test_cores_that_were_chosen_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has bound the engine has decided on the rest, too."""
    assert {0, 1, 2, 5} == divided(monkeypatch, 1, bound="5")
    assert "5" == os.environ[machine.BIND]
