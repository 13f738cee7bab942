"""The top-level folders are the packages `autellix.*`: by links in the source tree, by name in the wheel."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGES = ("client", "cuda", "engine", "schemas", "services")
TAKEN_BY_NVIDIA = {"bindings", "core", "pathfinder", "tile"}


@pytest.fixture(scope="module")
def wheel(root: Path, files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Build the wheel from what is committed or would be; return the names in it."""
    source = tmp_path_factory.mktemp("source")
    for file in files:
        (source / file.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file, source / file, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    (built,) = (source / "dist").glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


def test_links_name_the_packages(root: Path) -> None:
    """The import root holds one link to each top-level package, relative, so that a clone can lie anywhere."""
    links = {link.name: str(link.readlink()) for link in (root / "ops/packaging/autellix").iterdir()}

    assert {name: f"../../../{name}" for name in PACKAGES} == links


def test_cuda_merges_with_nvidias_packages(files: list[Path]) -> None:
    """`cuda/` is no package and takes none of NVIDIA's names: either would break vLLM in the repository root."""
    cuda = [file for file in files if file.parts[0] == "cuda"]

    assert cuda
    assert [] == [str(file) for file in cuda if file.name == "__init__.py" or TAKEN_BY_NVIDIA & set(file.parts)]


def test_the_wheel_holds_every_module(files: list[Path], wheel: set[str]) -> None:
    """Every Python file of the packages is in the wheel, under `autellix/`, and so is its typing marker."""
    wanted = {f"autellix/{file}" for file in files if file.parts[0] in PACKAGES and file.suffix in {".py", ".typed"}}

    assert wanted <= wheel
    assert {"autellix/cuda/README.md"} <= wheel


def test_the_wheel_installs_nothing_else(wheel: set[str]) -> None:
    """Nothing lands at the top level of site-packages but `autellix` and the wheel's own record."""
    assert {"autellix", "autellix-0.1.0.dist-info"} == {name.split("/")[0] for name in wheel}
