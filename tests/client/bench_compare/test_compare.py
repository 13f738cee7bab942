"""`autellix bench compare` on a real stack with simulated engines: it runs, goes on where it stopped, and judges."""

import json
import re
from pathlib import Path

import pytest

from autellix.client import cli
from autellix.client.bench import machine
from autellix.client.stack import Stack

Output = pytest.CaptureFixture[str]

FEW = """
systems_file = "systems.toml"
results = "results"
systems = ["http", "nats"]
reference = "http"
programs = 3
warm_up = 1
seeds = [1, 2]

[[workloads]]
name = "bfcl"
shares = [0.4, 0.8]
capacity_live = 2
capacity_programs = 8
scale = { prompts = 50, answers = 50, interrupts = 0 }

[[workloads]]
name = "chat"
workload = "sharegpt"
live_programs = [2]
max_calls = 4
scale = { prompts = 50, answers = 50, interrupts = 0 }
"""
LISTS_MODELS_ONLY = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"object": "list", "data": [{"id": "tiny"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
BROKEN = """
[systems.broken]
command = ["{python}", "-c", "raise SystemExit('no model')"]
"""
RUNS = {
    *(f"bfcl-{load}-{seed}-{system}" for load in ("0.4", "0.8") for seed in (1, 2) for system in ("http", "nats")),
    *(f"chat-2-{seed}-{system}" for seed in (1, 2) for system in ("http", "nats")),
    "bfcl-capacity-0-http",
}


@pytest.fixture
def folder(stack: Stack, tmp_path: Path) -> Path:
    """Return a folder with a suite, `few.toml`, of two ways into one stack."""
    (tmp_path / "systems.toml").write_text(
        f'[systems.http]\nurl = "{stack.http_url}"\nkind = "gateway"\n'
        f'[systems.nats]\nurl = "{stack.nats_url}"\nkind = "nats"\n'
    )
    (tmp_path / "few.toml").write_text(FEW)
    return tmp_path


def compare(folder: Path, *options: str) -> int:
    """Run the suite."""
    return cli.main(["bench", "compare", str(folder / "few.toml"), *options])


def kept(folder: Path) -> dict[str, int]:
    """Return the runs on disk, and when each was written."""
    return {file.stem: file.stat().st_mtime_ns for file in (folder / "results" / "few").glob("*.json")}


@pytest.mark.parametrize("restart", ["true", "false"])
def test_a_suite_is_run_once(folder: Path, capsys: Output, restart: str) -> None:
    """All runs are kept; a second pass shows the same tables without making any; one that is lost is made again."""
    (folder / "few.toml").write_text(f"restart = {restart}\n{FEW}")
    assert 0 == compare(folder)
    first, shown = kept(folder), capsys.readouterr().out
    assert 0 == compare(folder)
    second, shown_again = kept(folder), capsys.readouterr().out
    (folder / "results" / "few" / "chat-2-1-nats.json").unlink()
    assert 0 == compare(folder)
    third = kept(folder)

    assert RUNS == set(first)
    assert first == second
    assert shown.endswith(shown_again)
    assert RUNS == set(third)
    assert {"chat-2-1-nats"} == {name for name in RUNS if third[name] != first[name]}


def test_runs_are_made_again_on_demand(folder: Path) -> None:
    """With --again every run is made anew, also those that are there."""
    assert 0 == compare(folder, "--workloads", "chat")
    first = kept(folder)
    assert 0 == compare(folder, "--workloads", "chat", "--again")
    second = kept(folder)

    assert set(first) == set(second)
    assert set() == set(first.items()) & set(second.items())


def test_all_numbers_are_written(folder: Path) -> None:
    """JSON has every run and ratio, and each workload has its picture."""
    pytest.importorskip("matplotlib")
    assert 0 == compare(folder, "--json", str(folder / "all.json"), "--png", str(folder / "png"))

    workloads = json.loads((folder / "all.json").read_bytes())["workloads"]
    bfcl, chat = workloads["bfcl"], workloads["chat"]
    assert {(load, system, seed) for load in ("0.4", "0.8") for system in ("http", "nats") for seed in (1, 2)} == {
        (run["load"], run["system"], run["seed"]) for run in bfcl["runs"]
    }
    assert {0} == {run["summary"]["errors"] for run in (*bfcl["runs"], *chat["runs"])}
    assert bfcl["capacity_per_s"] > 0
    assert chat["capacity_per_s"] is None
    assert {"rate at 1.5x", "rate at 5x"} <= set(bfcl["ratios"]["nats"])
    assert ["bfcl.png", "chat.png"] == sorted(file.name for file in (folder / "png").iterdir())


def test_some_of_a_suite_is_run(folder: Path) -> None:
    """Only the workloads and systems that are named are run, and the reference."""
    assert 0 == compare(folder, "--workloads", "chat", "--systems", "nats")

    assert {name for name in RUNS if name.startswith("chat")} == set(kept(folder))


def test_missed_floors_are_an_error(folder: Path, capsys: Output) -> None:
    """The status is 1, and the last line says which floor it was."""
    floor = '\n[[floors]]\nworkload = "chat"\nratio = "latency at 2"\nsystem = "nats"\nover = "http"\nmost = 0.001\n'
    (folder / "few.toml").write_text(FEW + floor)

    assert 1 == compare(folder, "--workloads", "chat")
    assert (
        "chat: latency at 2 of nats over http must be at most 0.001; it is " in capsys.readouterr().out.splitlines()[-1]
    )


@pytest.mark.parametrize("restart", ["true", "false"])
def test_a_system_that_does_not_start_stops_nothing_else(folder: Path, capsys: Output, restart: str) -> None:
    """The others are run, the status is 1, and what is missing is told with the end of the system's log."""
    with (folder / "systems.toml").open("a") as file:
        file.write(BROKEN)
    suite = FEW.replace('["http", "nats"]', '["http", "broken"]')
    (folder / "few.toml").write_text(f"restart = {restart}\n{suite}")

    assert 1 == compare(folder, "--workloads", "chat")
    shown = capsys.readouterr().out
    assert {"chat-2-1-http", "chat-2-2-http"} == set(kept(folder))
    missing = "chat-2-1-broken" if restart == "true" else "chat-2-1-broken, chat-2-2-broken"
    assert f"failed: {missing}: broken ended with status 1" in shown
    assert "no model" in shown


def test_a_system_that_fails_a_run_is_asked_no_more(folder: Path, capsys: Output) -> None:
    """Its other runs are told of as missing, too, and those of the other systems are made."""
    server = folder / "server.py"
    server.write_text(LISTS_MODELS_ONLY)
    with (folder / "systems.toml").open("a") as file:
        file.write(f'[systems.broken]\ncommand = ["{{python}}", "{server}", "{{port}}"]\nready = "/v1/models"\n')
    suite = FEW.replace('["http", "nats"]', '["http", "broken"]')
    (folder / "few.toml").write_text(f"restart = false\n{suite}")

    assert 1 == compare(folder, "--workloads", "chat")
    shown = capsys.readouterr().out
    assert {"chat-2-1-http", "chat-2-2-http"} == set(kept(folder))
    assert "failed: chat-2-1-broken, chat-2-2-broken: " in shown


def test_results_of_another_machine_are_refused(folder: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured elsewhere, or with other versions, is not compared with what is measured here."""
    assert 0 == compare(folder, "--workloads", "chat")
    monkeypatch.setattr(machine, "described", lambda: "1 core, an abacus")

    assert 1 == compare(folder, "--workloads", "chat")
    assert re.search(r"chat-2-1-\w+\.json was made on \d+ cores, ", " ".join(capsys.readouterr().err.split()))


def test_results_of_another_suite_are_refused(folder: Path, capsys: Output) -> None:
    """Runs that the suite no longer asks for are not taken for those that it does."""
    assert 0 == compare(folder, "--workloads", "chat")
    (folder / "few.toml").write_text(FEW.replace("programs = 3", "programs = 4"))

    assert 1 == compare(folder, "--workloads", "chat")
    assert "is of another load or system than the suite asks for now; move it away" in capsys.readouterr().err
