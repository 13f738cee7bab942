"""The command `autellix sim`."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from autellix.client import cli
from autellix.client.plan import service_command

FEW = ["--programs", "5", "--set", "max_context_tokens=2000", "--set", "measure_from=0", "--set", "measure_to=1"]


def sim(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the simulator's own command."""
    command = [sys.executable, "-m", "autellix.services.simulator", *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_processes_agree_to_the_byte(tmp_path: Path) -> None:
    """Two processes with different hash seeds write the same bytes, and print the table of the same run."""
    written = []
    for hash_seed in ("1", "2"):
        file = tmp_path / f"{hash_seed}.json"
        done = sim("run", *FEW, "--engines", "2", "--json", str(file), PYTHONHASHSEED=hash_seed)
        assert 0 == done.returncode, done.stderr
        written.append(file.read_bytes())

    assert written[0] == written[1]
    assert "Measured are the 5 programs that arrived in the middle: 5 finished" in done.stdout
    assert 5 == len(msgspec.json.decode(written[0])["programs"])


def test_a_run_is_drawn(tmp_path: Path) -> None:
    """With --png a run is drawn as a PNG file."""
    done = sim("run", *FEW, "--png", str(tmp_path / "run.png"))

    assert 0 == done.returncode, done.stderr
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--workload", "poems"], "autellix sim: workload: 'poems' is neither"),
        (["--set", "betta=1"], "autellix sim: Object contains unknown field `betta`"),
        (["--calibration", "nowhere.toml"], "autellix sim: nowhere.toml: "),
    ],
)
def test_what_makes_no_sense_is_one_sentence(arguments: list[str], why: str) -> None:
    """A scenario that cannot be run ends with status 2 and one line on stderr."""
    done = sim("run", *arguments)

    assert 2 == done.returncode
    assert done.stderr.startswith(why)
    assert 1 == len(done.stderr.splitlines())


def test_the_client_hands_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`autellix sim` becomes the simulator with all its arguments, options and --help too."""
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _program, command: became.append(command))
    cli.main(["sim", "run", "--rate", "2", "--help"])
    cli.main(["sim", "--help"])

    assert [
        service_command("simulator", ["run", "--rate", "2", "--help"]),
        service_command("simulator", ["--help"]),
    ] == (became)
