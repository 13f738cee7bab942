"""A stack of real processes: it starts, says what is wrong, and leaves nothing behind."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from autellix.client import Program
from autellix.client.errors import StackError, UnreachableError
from autellix.client.plan import Plan
from autellix.client.stack import Stack, free_port, is_free

SIMULATED = "engine_worker.backend=simulated"
END_S = 30.0


def ends(pidfds: list[int]) -> bool:
    """Tell whether all processes end within the bound."""
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    while pidfds:
        ended = poll.poll(END_S * 1000)
        if not ended:
            return False
        for pidfd, _ in ended:
            poll.unregister(pidfd)
            pidfds.remove(pidfd)
            os.close(pidfd)
    return True


@pytest.fixture
def up(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Return a running `autellix up` with a simulated engine, ready for calls."""
    command = [sysconfig.get_path("scripts") + "/autellix", "up", "--model", "tiny", "--port", "0"]
    options = ["--set", SIMULATED, "--log-dir", str(tmp_path)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("Ready"):
                break
        yield process
        process.kill()


def children_of(process: "subprocess.Popen[str]") -> list[int]:
    """Return a handle on each child of a process, and of its children."""
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [os.pidfd_open(int(pid)) for pid in pids]


async def test_stack_takes_calls_both_ways(stack: Stack) -> None:
    """A started stack answers programs over NATS and requests over HTTP."""
    async with Program("p", nats_url=stack.nats_url) as program:
        answer = await program.chat([{"role": "user", "content": "Hello"}], max_tokens=3)
    async with httpx.AsyncClient(base_url=stack.http_url) as http:
        models = (await http.get("/v1/models")).json()

    assert answer.text
    assert [model["id"] for model in models["data"]] == ["tiny"]


async def test_process_that_cannot_start_is_named(tmp_path: Path) -> None:
    """A process that ends at once is named, with the end of its log, and the rest is stopped."""
    stack = Stack(Plan(port=0, overrides=("log.level=info", "session_manager.ttl_s=0"), log_dir=tmp_path))

    with pytest.raises(StackError, match=r"(?s) died \(exit status 2\):.*ttl_s"):
        await stack.__aenter__()

    assert {child._process.returncode is not None for child in stack.children} == {True}


async def test_process_that_dies_later_is_named(tmp_path: Path) -> None:
    """Work that is guarded fails as soon as a process of the stack dies."""
    async with Stack(Plan(model="tiny", port=0, overrides=(SIMULATED,), log_dir=tmp_path)) as stack:
        (balancer,) = (child for child in stack.children if child.name == "load-balancer")
        os.kill(balancer._process.pid, signal.SIGKILL)

        with pytest.raises(StackError, match=r"^load-balancer died \(signal 9\)"):
            await stack.guard(stack.children[0].ended())


def test_taken_port_is_refused(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that something else listens on is an error that names it, and no folder for logs is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(StackError, match=rf"^Port {stack.port} cannot be used"):
        Stack(Plan(port=stack.port))

    assert [*tmp_path.iterdir()] == []


def test_port_is_free_until_something_listens() -> None:
    """Whether a port can be used is found by trying."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)

    assert is_free(port)


async def test_nats_server_takes_the_port_of_the_plan(tmp_path: Path) -> None:
    """The server that a stack starts listens where the plan says."""
    plan = Plan(model="tiny", port=0, nats_port=free_port(), overrides=(SIMULATED,), log_dir=tmp_path)
    async with Stack(plan) as stack:
        assert f"nats://127.0.0.1:{plan.nats_port}" == stack.nats_url


async def test_given_nats_server_must_be_there(tmp_path: Path) -> None:
    """A stack on a NATS server of its user's fails at once when there is none."""
    with pytest.raises(UnreachableError):
        await Stack(Plan(port=0, nats_url="nats://127.0.0.1:9", log_dir=tmp_path)).__aenter__()


async def test_stack_uses_a_given_nats_server(nats_url: str, tmp_path: Path) -> None:
    """With a NATS URL no server is started."""
    plan = Plan(model="tiny", port=0, nats_url=nats_url, overrides=(SIMULATED,), log_dir=tmp_path)
    async with Stack(plan) as stack:
        assert nats_url == stack.nats_url
        assert "nats-server" not in {child.name for child in stack.children}


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_up_stops_when_asked(up: "subprocess.Popen[str]", name: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end `autellix up` with status 0 and all its processes."""
    children = children_of(up)
    up.send_signal(name)

    assert up.wait(END_S) == 0
    assert len(children) == 8
    assert ends(children)


def test_up_tells_a_script_where_it_is(tmp_path: Path) -> None:
    """With --json there is one line on stdout, once calls can be made; what is for people goes to stderr."""
    command = [sysconfig.get_path("scripts") + "/autellix", "up", "--model", "tiny", "--port", "0", "--json"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--set", SIMULATED, "--log-dir", str(tmp_path)], **pipes) as process:
        assert process.stdout
        where = json.loads(process.stdout.readline())
        models = httpx.get(f"{where['http']}/models").json()["data"]
        process.send_signal(signal.SIGTERM)
        rest, said = process.communicate(timeout=END_S)

    assert [model["id"] for model in models] == ["tiny"]
    assert where == {**where, "page": where["http"].removesuffix("v1"), "logs": str(tmp_path)}
    assert where["nats"].startswith("nats://")
    assert (process.returncode, rest) == (0, "")
    assert said.splitlines()[-1] == "Stopped."


def test_children_die_with_up(up: "subprocess.Popen[str]") -> None:
    """Not even SIGKILL on `autellix up` leaves a process behind."""
    children = children_of(up)
    up.kill()

    assert ends(children)


def test_up_says_what_died(up: "subprocess.Popen[str]", tmp_path: Path) -> None:
    """When a process dies, `autellix up` stops the others and ends with status 1."""
    children = children_of(up)
    (pid,) = re.findall(r"\d+", Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text())[-1:]
    os.kill(int(pid), signal.SIGKILL)

    assert up.wait(END_S) == 1
    assert ends(children)
