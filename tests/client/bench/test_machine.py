"""Results say on what they were measured."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import pytest

from autellix.client.bench import machine


@pytest.fixture(autouse=True)
def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no engine bound, whatever the machine's owner has set."""
    monkeypatch.delenv(machine.BIND, raising=False)


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


def divided(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cores: set[int], *, bound: str = "", gpu: bool = False
) -> set[int]:
    """Return the cores that are left to this process, and set the environment."""
    mine = [cores]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: mine[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, left: mine.append(set(left)))
    monkeypatch.setattr(machine, "GPUS", tmp_path)
    if gpu:
        (tmp_path / "0000:01:00.0").mkdir()
    monkeypatch.setenv(machine.BIND, bound)  # so that it is put back at the end
    if not bound:
        monkeypatch.delenv(machine.BIND)
    machine.divide()
    return mine[-1]


def test_the_engine_gets_the_last_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Everything else keeps off it, and results say so."""
    assert {0, 1, 2} == divided(monkeypatch, tmp_path, {0, 1, 2, 5})
    assert "5" == os.environ[machine.BIND]
    assert machine.described().startswith("3 cores and '5' for the engine, ")


@pytest.mark.parametrize(("cores", "gpu"), [({3}, False), ({0, 1}, True)])
def test_nothing_to_set_aside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cores: set[int], *, gpu: bool) -> None:
    """A single core is everybody's, and a GPU's engine computes on none."""
    assert cores == divided(monkeypatch, tmp_path, cores, gpu=gpu)
    assert machine.BIND not in os.environ


def test_a_core_that_was_chosen_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who has bound the engine has decided on the rest, too."""
    assert {0, 1, 2, 5} == divided(monkeypatch, tmp_path, {0, 1, 2, 5}, bound="5")
    assert "5" == os.environ[machine.BIND]
