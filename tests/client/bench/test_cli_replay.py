"""`autellix bench replay`, on a stack with simulated engines."""

import importlib.util
from pathlib import Path

import pytest

from autellix.client import cli
from autellix.client.bench import report
from autellix.client.bench.load import Load, Scale
from autellix.client.stack import Stack

Output = pytest.CaptureFixture[str]
COMMAND = ["bench", "replay", "--programs", "4", "--rate", "100", "--warm-up", "1"]


@pytest.mark.parametrize("kind", ["url", "gateway", "nats"])
def test_run_is_shown_and_written(stack: Stack, trace: str, tmp_path: Path, kind: str, capsys: Output) -> None:
    """Against each kind of server the table is printed, and the files are written."""
    url = stack.nats_url if kind == "nats" else stack.http_url
    files = ["--json", str(tmp_path / "run.json"), "--png", str(tmp_path / "run.png")]
    status = cli.main([*COMMAND, f"--{kind}", url, "--workload", trace, "--name", "ours", *files])
    printed = capsys.readouterr()
    run = report.read_json(tmp_path / "run.json")

    assert (0, "") == (status, printed.err)
    assert "seed 1, on ours" in printed.out
    assert "4 of 4 measured programs finished" in printed.out
    assert ("ours", 4) == (run.system, len(run.rows))
    assert (tmp_path / "run.png").exists()


def test_command_line_is_the_load(stack: Stack, tmp_path: Path) -> None:
    """Every option of the load reaches the run."""
    options = ["--programs", "2", "--seed", "3", "--live", "2", "--half", "second", "--max-calls", "5"]
    options += ["--max-context-tokens", "400", "--scale-prompts", "20", "--scale-answers", "30"]
    options += ["--scale-interrupts", "0", "--interrupt-cap", "0.5", "--warm-up", "0"]
    server = ["--nats", stack.nats_url, "--json", str(tmp_path / "run.json")]
    assert cli.main(["bench", "replay", "--workload", "bfcl", *options, *server]) == 0

    scale = Scale(prompts=20, answers=30, interrupts=0, interrupt_cap_s=0.5)
    load = Load(
        workload="bfcl",
        programs=2,
        seed=3,
        rate_per_s=None,
        live_programs=2,
        half="second",
        max_calls=5,
        max_context_tokens=400,
        scale=scale,
    )
    assert load == report.read_json(tmp_path / "run.json").load


def test_run_without_a_result_ends_with_status_1(stack: Stack, trace: str, capsys: Output) -> None:
    """When no measured program finished, the table says why, and so does the status."""
    server = ["--url", stack.http_url, "--model", "nosuch"]
    status = cli.main([*COMMAND, *server, "--workload", trace, "--warm-up", "0"])

    assert 1 == status
    assert "4 of 4 programs failed, the first with: " in capsys.readouterr().out


def test_nonsense_is_one_sentence(stack: Stack, capsys: Output) -> None:
    """A workload that nobody knows is one line on stderr."""
    status = cli.main([*COMMAND, "--url", stack.http_url, "--workload", "nosuch"])

    assert 1 == status
    assert capsys.readouterr().err.startswith("autellix: workload: 'nosuch' is neither one of")


def test_missing_matplotlib_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """A picture that cannot be drawn is refused before anything runs."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    status = cli.main([*COMMAND, "--url", "http://127.0.0.1:9", "--workload", "bfcl", "--png", "a.png"])

    assert 1 == status
    assert "--png needs matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--rate", "0", "above 0"),
        ("--rate", "nan", "a number from 0 up"),
        ("--scale-prompts", "x", "a number from 0 up"),
        ("--interrupt-cap", "-1", "a number from 0 up"),
        ("--seed", "-1", "a number from 0 up"),
        ("--programs", "0", "at least 1"),
    ],
)
def test_numbers_must_make_sense(option: str, value: str, problem: str, capsys: Output) -> None:
    """A number that makes no sense is refused by the command line, with its reason."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*COMMAND, "--url", "http://127.0.0.1:9", "--workload", "bfcl", f"{option}={value}"])

    assert 2 == ended.value.code
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["bench"], ["bench", "replay"]])
def test_verb_explains_itself(verb: list[str], capsys: Output) -> None:
    """--help says what the verb does."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*verb, "--help"])

    assert 0 == ended.value.code
    assert f"usage: autellix {' '.join(verb)}" in capsys.readouterr().out
