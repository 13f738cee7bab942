"""The figures, from the command to the files."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from autellix.services.simulator.figures import FIGURES
from autellix.services.simulator.figures.drawing import Drawing, from_json
from autellix.services.simulator.figures.effort import FULL, QUICK, Effort
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.scenario import Scenario

PNG = b"\x89PNG"
SMALL = Effort(seeds=(1, 2), arrivals_s=1, offline_programs=(4,), engines=(1,))


def sim(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulator's own command."""
    command = [sys.executable, "-m", "autellix.services.simulator", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def drawn(name: str, folder: Path, *, jobs: int) -> Drawing:
    """Return a small drawing of a figure, its runs made in a folder."""
    runs = Runs(folder, jobs)
    for _ in runs.make(runs.missing(FIGURES[name].scenarios(SMALL))):
        pass
    return FIGURES[name].drawing(SMALL, runs)


@pytest.mark.parametrize(("name", "table"), [("fig16", "makespan, s"), ("fig19", "time spent copying, s")])
def test_a_command_draws_a_figure(name: str, table: str, tmp_path: Path) -> None:
    """In quick mode a figure's command prints its tables and writes JSON and PNG."""
    done = sim(name, "--quick", "--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs"))

    assert 0 == done.returncode, done.stderr
    assert table in done.stdout
    drawing = from_json((tmp_path / f"out/{name}.json").read_bytes())
    assert (name, list(QUICK.seeds)) == (drawing.figure, drawing.seeds)
    assert table in {each.title for each in drawing.tables}
    assert (tmp_path / f"out/{name}.png").read_bytes().startswith(PNG)


def test_a_figure_is_the_same_twice(tmp_path: Path) -> None:
    """Its JSON is the same to the byte, however many processes simulate and whatever was there before."""
    one = drawn("fig16", tmp_path / "one", jobs=1)
    two = drawn("fig16", tmp_path / "two", jobs=2)
    kept = drawn("fig16", tmp_path / "two", jobs=1)

    assert one.as_json() == two.as_json() == kept.as_json()
    assert one == from_json(one.as_json())


def test_a_run_is_made_once(tmp_path: Path) -> None:
    """What was made is missing no more, also for another process; scenarios that are equal are one run."""
    scenario = Scenario(programs=2, max_context_tokens=2000)
    runs = Runs(tmp_path, jobs=1)
    before = runs.missing([scenario, Scenario(programs=2, max_context_tokens=2000)])
    made = list(runs.make(before))

    assert [scenario] == before == made
    assert [] == Runs(tmp_path, jobs=1).missing([scenario])
    assert scenario == runs.result(scenario).scenario


def test_a_run_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """What is wrong with a scenario comes out of the process that found it, and nothing is kept."""
    runs = Runs(tmp_path, jobs=1)
    with pytest.raises(ValueError, match="'poems' is neither"):
        list(runs.make([Scenario(workload="poems")]))

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("effort", [FULL, QUICK])
def test_every_figure_asks_for_runs(effort: Effort) -> None:
    """Every figure takes runs of each seed, and figures share the runs that are the same."""
    asked = {name: figure.scenarios(effort) for name, figure in FIGURES.items()}
    different = {name: {msgspec.json.encode(each) for each in scenarios} for name, scenarios in asked.items()}

    seeds = {name: {each.seed for each in scenarios} for name, scenarios in asked.items()}
    more = {*range(1, 1 + max(effort.engines) * len(effort.seeds))}
    """Fewer engines take more seeds there, so that all see as many programs."""

    assert {name: set(effort.seeds) for name in FIGURES} | {"fig15": more} == seeds
    assert different["fig13"] == different["fig12"]
    assert different["fig5"] < different["fig12"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["fig3"], "invalid choice: 'fig3'"),
        (["fig5", "--jobs", "0"], "'0' is below 1"),
        (["fig5", "--seeds", "1,1"], "are not different numbers from 0 up"),
        (["fig5", "--seeds", "one"], "invalid _seeds value: 'one'"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], why: str) -> None:
    """A figure that does not exist and an option without sense end with status 2 before anything runs."""
    done = sim(*arguments)

    assert 2 == done.returncode
    assert why in done.stderr
