"""`autellix run`: an unchanged script whose calls belong to one program, on a stack with simulated engines."""

import json
from pathlib import Path
from typing import Any

import pytest

from autellix.client import cli
from autellix.client.cli.run import environment
from autellix.client.stack import Stack

SCRIPT = """
import json, os, sys, urllib.request

def ask(path, body, **headers):
    base = os.environ["OPENAI_BASE_URL"]
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], **headers}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return answer.headers["X-Autellix-Program-Id"]

body = {"model": os.environ["AUTELLIX_MODEL"], "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
ids = {ask("/chat/completions", body), ask("/chat/completions", body, **{"X-Session-ID": "sub-agent"})}
print(json.dumps([sys.argv[1:], sorted(ids)]))
sys.exit(3)
"""
Output = pytest.CaptureFixture[str]


def row(stack: Stack, program_id: str, printed: Output) -> dict[str, Any]:
    """Return a program's record."""
    printed.readouterr()
    assert cli.main(["show", program_id, "--json", "--nats-url", stack.nats_url]) == 0
    return dict(json.loads(printed.readouterr().out))


def test_script(stack: Stack, tmp_path: Path, capfd: Output) -> None:
    """All calls are of one program, which is over with the script; the script's status is the command's."""
    script = tmp_path / "agent.py"
    script.write_text(SCRIPT)
    url = f"http://127.0.0.1:{stack.port}"
    status = cli.main(["run", "--url", url, "--agent", "coder", "--nats-url", stack.nats_url, str(script), "-x", "y"])
    arguments, ids = json.loads(capfd.readouterr().out)

    assert (status, arguments, len(ids)) == (3, ["-x", "y"], 1)
    program = row(stack, ids[0], capfd)
    expected = {"name": "agent.py", "kind": "coder", "source": "started", "state": "ended", "calls": 2}
    assert expected == {name: program[name] for name in expected}
    assert sorted(program["threads"]) == ["main", "sub-agent"]


def test_record(stack: Stack, tmp_path: Path, capfd: Output) -> None:
    """With --json the program's record is printed when it is over, its last call counted."""
    script = tmp_path / "agent.py"
    script.write_text(SCRIPT)
    command = ["run", "--url", f"http://127.0.0.1:{stack.port}", "--json", "--nats-url", stack.nats_url]
    assert cli.main([*command, str(script)]) == 3
    record = json.loads(capfd.readouterr().err.splitlines()[-1])

    assert (record["name"], record["state"], record["calls"], record["live_calls"]) == ("agent.py", "ended", 2, 0)


def test_command_that_is_not_there(stack: Stack, capsys: Output) -> None:
    """A command that cannot be run is one sentence and status 1."""
    assert cli.main(["run", "--nats-url", stack.nats_url, "no-such-command"]) == 1
    assert capsys.readouterr().err.startswith("autellix: cannot run no-such-command")


def test_command_that_is_killed(stack: Stack) -> None:
    """A command that a signal ended has the status that a shell would give it."""
    assert cli.main(["run", "--nats-url", stack.nats_url, "sh", "-c", "kill -9 $$"]) == 137


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients' variables name the program; a key that is set stays."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    told = environment("http://gate:8000", "p1", "m")

    assert told["OPENAI_BASE_URL"] == "http://gate:8000/programs/p1/v1"
    assert told["ANTHROPIC_BASE_URL"] == "http://gate:8000/programs/p1"
    assert (told["OPENAI_API_KEY"], told["ANTHROPIC_API_KEY"], told["AUTELLIX_MODEL"]) == ("sk-1", "none", "m")
