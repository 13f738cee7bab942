"""The systemd units: systemd takes them, they are well confined, and they stop gently and completely."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autellix.client.plan import SERVICES
from autellix.services.config import Config

FOLDER = Path(__file__).parents[2] / "ops" / "systemd"
UNITS = sorted(path.name for path in FOLDER.glob("autellix*.*") if path.suffix in {".service", ".target"})
SERVICE_UNITS = [name for name in UNITS if name.endswith(".service")]
COMMON = FOLDER / "autellix-.service.d" / "10-all.conf"
EXPOSURE_MAX = 25
"""In tenths, as `systemd-analyze security` counts: 2.5 of 10."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the units that verifies on any machine: its programs exist."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path_factory.mktemp("systemd") / "units"
    shutil.copytree(FOLDER, copy)
    for unit in copy.glob("*.service"):
        unit.write_text(re.sub(r"/opt/autellix/\.venv/bin/[\w-]+", "/bin/true", unit.read_text()))
    return copy


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `systemd-analyze`."""
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_unit(installed: Path, unit: str) -> None:
    """`systemd-analyze verify` has nothing to say about it."""
    done = analyze("verify", "--man=no", installed / unit)
    complaints = [line for line in done.stderr.splitlines() if str(installed) in line]

    assert (0, []) == (done.returncode, complaints), done.stderr


@pytest.mark.parametrize("unit", SERVICE_UNITS)
def test_the_unit_is_confined(installed: Path, unit: str) -> None:
    """A service can do little harm to the machine: systemd counts its exposure as low."""
    done = analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", installed / unit)

    assert 0 == done.returncode, done.stdout[-2000:]


def test_every_service_has_its_unit() -> None:
    """Each service that `autellix serve` knows is started by exactly one unit; the broker's is the only other one."""
    served = [
        match[1] for unit in SERVICE_UNITS for match in re.finditer(r"serve ([\w-]+)", (FOLDER / unit).read_text())
    ]

    assert sorted(SERVICES) == sorted(served)
    assert len(SERVICES) + 1 == len(SERVICE_UNITS)


def test_the_target_wants_every_unit() -> None:
    """Starting the target starts everything; the template by its first instance."""
    wanted = re.findall(r"^Wants=(.+)$", (FOLDER / "autellix.target").read_text(), re.MULTILINE)

    assert SERVICE_UNITS == sorted(unit.replace("@engine-0", "@") for unit in wanted)


def test_units_wait_longer_than_a_service_drains() -> None:
    """A service that is still finishing its calls is never killed."""
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)s$", COMMON.read_text(), re.MULTILINE)
    drains = (Config().engine_worker.drain_s, Config().gateway.drain_s)

    assert int(stop_s) >= max(drains) + 10


def test_no_unit_needs_another_to_start() -> None:
    """Units are ordered for stopping only: none requires, binds to or waits in earnest for another."""
    text = "\n".join((FOLDER / unit).read_text() for unit in UNITS) + COMMON.read_text()

    assert [] == re.findall(r"^(?:Requires|Requisite|BindsTo|Upholds|Before)=.*$", text, re.MULTILINE)
