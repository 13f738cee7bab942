"""The command `autellix`, on a stack with simulated engines."""

import json
import os
import subprocess
from typing import Any

import pytest

from autellix.client import cli
from autellix.client.cli import ps
from autellix.client.plan import SERVICES, service_command
from autellix.client.stack import Stack
from autellix.schemas.ids import ProgramId
from autellix.schemas.table import ProgramRecord

Output = pytest.CaptureFixture[str]


def test_submit_prints_the_answer(stack: Stack, capsys: Output) -> None:
    """Streamed or not, the text of the answer is what is printed."""
    for options in ([], ["--no-stream"]):
        assert cli.main(["submit", "Hello", "--max-tokens", "3", "--nats-url", stack.nats_url, *options]) == 0

    streamed, whole = capsys.readouterr().out.splitlines()
    assert streamed
    assert whole == streamed


def test_submit_prints_the_response(stack: Stack, capsys: Output) -> None:
    """With --json the whole OpenAI response is printed."""
    assert cli.main(["submit", "Hello", "--max-tokens", "3", "--json", "--nats-url", stack.nats_url]) == 0

    assert json.loads(capsys.readouterr().out)["usage"]["completion_tokens"] == 3


def test_ps_lists_programs_and_engines(stack: Stack, capsys: Output) -> None:
    """After a call its program is in the table, and so are both engines."""
    cli.main(["submit", "Hello", "--max-tokens", "3", "--nats-url", stack.nats_url])
    capsys.readouterr()

    assert cli.main(["ps", "--json", "--nats-url", stack.nats_url]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert cli.main(["ps", "--nats-url", stack.nats_url]) == 0
    shown = capsys.readouterr().out

    assert listed["programs"][-1]["program_id"][:6] in shown
    assert {engine["engine_id"] for engine in listed["engines"]} == {"engine-0", "engine-1"}
    assert "engine-1" in shown
    assert "\n\nEngines" in shown.replace(" ", "")


@pytest.mark.parametrize("verb", [["ps"], ["submit", "Hello"]])
def test_missing_server_is_one_sentence(verb: list[str], capsys: Output) -> None:
    """Without a NATS server a verb ends with status 1 and one line on stderr."""
    assert cli.main([*verb, "--nats-url", "nats://127.0.0.1:9"]) == 1

    assert capsys.readouterr().err.splitlines()[0].startswith("autellix: No NATS server at nats://127.0.0.1:9")


def test_unknown_program_is_one_sentence(stack: Stack, capsys: Output) -> None:
    """A refused call ends with status 1 and what the service said."""
    assert cli.main(["submit", "Hello", "--program", "nosuch", "--nats-url", stack.nats_url]) == 1

    assert capsys.readouterr().err.startswith("autellix: No live program 'nosuch'")


@pytest.mark.parametrize("verb", ["up", "serve", "ps", "submit", "completion"])
def test_every_verb_explains_itself(verb: str, capsys: Output) -> None:
    """--help of each verb says what it does."""
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "--help"])

    assert ended.value.code == 0
    assert f"usage: autellix {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_number_must_make_sense(number: str, capsys: Output) -> None:
    """A stack of no engines is refused by the command line, with its reason."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["up", "--engines", number])

    assert ended.value.code == 2
    assert "at least 1" in capsys.readouterr().err


def test_unknown_policy_is_refused(capsys: Output) -> None:
    """A policy that no engine knows is refused by the command line, with those that there are."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["up", "--policy", "nosuch"])

    assert ended.value.code == 2
    assert "'nosuch' (choose from 'fcfs', " in capsys.readouterr().err


def test_ps_says_what_it_leaves_out(stack: Stack, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that ended too long ago are counted, and --all shows them."""
    for _ in range(2):
        cli.main(["submit", "Hello", "--max-tokens", "1", "--nats-url", stack.nats_url])
    monkeypatch.setattr(ps, "ENDED_SHOWN", 1)
    capsys.readouterr()

    assert cli.main(["ps", "--nats-url", stack.nats_url]) == 0
    assert " more ended before; --all shows them." in capsys.readouterr().out
    assert cli.main(["ps", "--all", "--nats-url", stack.nats_url]) == 0
    assert "--all" not in capsys.readouterr().out


def test_ps_shows_what_runs_and_what_ended_last() -> None:
    """Of the programs that ended the oldest are left out; those that run are all shown, in the order of the table."""
    ended = [ProgramRecord(program_id=ProgramId(f"e{n}"), started_at_ms=0, ended_at_ms=n) for n in range(22)]
    runs = ProgramRecord(program_id=ProgramId("r"), started_at_ms=0)

    assert ps.recent([runs, *ended]) == [runs, *ended[2:]]
    assert ps.recent([*ended[:3], runs]) == [*ended[:3], runs]


@pytest.mark.parametrize("service", SERVICES)
def test_serve_becomes_the_service(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` replaces the process, passing the settings on."""
    replaced: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda *command: replaced.append(command))
    cli.main(["serve", service, "--config", "a.toml", "--set", "a.b=c"])

    command = service_command(service, ["--config", "a.toml", "--set", "a.b=c"])
    assert [(command[0], command)] == replaced


@pytest.mark.parametrize("verb", sorted(verb.__name__.rpartition(".")[2] for verb in cli.VERBS))
def test_shells_complete_every_verb(verb: str, capsys: Output) -> None:
    """What bash is told knows every verb, and bash itself understands it."""
    assert cli.main(["completion", "bash"]) == 0
    code = capsys.readouterr().out
    shown = {"show": "show end"}.get(verb, verb).split()
    script = f"{code}\ncomplete -p autellix >/dev/null && printf '%s\\n' \"${{_shtab_autellix_subparsers[@]}}\""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert set(shown) <= set(done.stdout.split())


def test_shells_complete_options(capsys: Output) -> None:
    """Options of a verb are known to zsh, too."""
    assert cli.main(["completion", "zsh"]) == 0

    assert "--nats-url" in capsys.readouterr().out


def test_shells_complete_files(capsys: Output) -> None:
    """Where a file is meant, files are completed, and folders where a folder is."""
    assert cli.main(["completion", "bash"]) == 0
    code = capsys.readouterr().out

    assert "_shtab_autellix_run_pos_0_COMPGEN=_shtab_compgen_files" in code
    assert "_shtab_autellix_up___config_COMPGEN=_shtab_compgen_files" in code
    assert "_shtab_autellix_up___log_dir_COMPGEN=_shtab_compgen_dirs" in code


def test_unknown_shell_is_refused(capsys: Output) -> None:
    """A shell that cannot be told is refused, with those that can."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["completion", "cmd.exe"])

    assert ended.value.code == 2
    assert "'bash'" in capsys.readouterr().err
