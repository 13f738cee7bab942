"""Systems are started, awaited and stopped for certain, with everything that they have started."""

import os
import select
import signal
import subprocess
import sysconfig
from pathlib import Path

import httpx
import pytest

from autellix.client.bench.servers import running
from autellix.client.bench.systems import Shape, System
from autellix.client.errors import StackError

END_S = 30.0

SERVER = """
import http.server, os, signal, subprocess, sys
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("processes", os.getpid(), child.pid, flush=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        self.wfile.write(f"{os.environ['COLOUR']} {sys.argv[2]}".encode())

if "late" in sys.argv:
    signal.pause()
if "broken" in sys.argv:
    child.kill()
    sys.exit("no room for {}")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def server(*words: str, start_s: float = END_S, stop_s: float = END_S) -> System:
    """Return a system with a child process, which tells of both."""
    command = ("{python}", "-c", SERVER.replace("{", "{{").replace("}", "}}"), "{port}", "{kv_blocks}")
    return System(command=command, arguments=words, environment={"COLOUR": "red"}, start_s=start_s, stop_s=stop_s)


def processes(log: Path) -> list[int]:
    """Return the processes that the log names."""
    return [int(number) for number in log.read_text().split("\n")[0].split()[1:]]


def ends(pid: int) -> bool:
    """Tell whether a process has ended, or does within the bound."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    try:
        return bool(poll.poll(END_S * 1000))
    finally:
        os.close(pidfd)


async def told(url: str) -> list[str]:
    """Return what the server says of what it was given."""
    async with httpx.AsyncClient() as http:
        return (await http.get(f"{url}/health")).text.split()


async def started(system: System, log: Path, error: Exception | None = None) -> list[str]:
    """Return what a system that was started says, after it was stopped; fail by `error` before that."""
    async with running("it", system, Shape(kv_tokens=320), here=log.parent, log=log) as url:
        says = await told(url)
        if error:
            raise error
    return says


async def test_a_system_runs_as_long_as_the_block(tmp_path: Path) -> None:
    """It has its environment and the sizes in its command, writes its log, and is gone afterwards."""
    log = tmp_path / "new" / "log"

    assert ["red", "10"] == await started(server(), log)
    assert [True, True] == [ends(pid) for pid in processes(log)]


@pytest.mark.parametrize("words", [(), ("deaf",)])
async def test_nothing_is_left_after_an_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Should the block fail, the system is stopped all the same, and one that does not listen is killed."""
    log = tmp_path / "log"
    with pytest.raises(KeyError):
        await started(server(*words, stop_s=0.5), log, KeyError())

    assert [True, True] == [ends(pid) for pid in processes(log)]


async def test_a_system_that_ends_says_why(tmp_path: Path) -> None:
    """One that ends before it is ready is told of at once, with the end of its log."""
    with pytest.raises(StackError, match=r"it ended with status 1; the end of .*log:\nprocesses .*\nno room for"):
        await started(server("broken"), tmp_path / "log")


async def test_a_system_that_is_late_is_stopped(tmp_path: Path) -> None:
    """One that is not ready in time is told of, and neither it nor what it has started is left behind."""
    log = tmp_path / "log"
    with pytest.raises(StackError, match=r"it is not ready after 2 s"):
        await started(server("late", start_s=2.0), log)

    assert [True, True] == [ends(pid) for pid in processes(log)]


def test_ctrl_c_stops_the_system(suite_file: Path) -> None:
    """A comparison that is interrupted while a system starts takes it along."""
    pipe = suite_file.with_name("pipe")
    os.mkfifo(pipe)
    script = "import os, pathlib, signal, sys; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); signal.pause()"
    systems = f'[systems.ref]\ncommand = ["{{python}}", "-c", "{script}", "{pipe}"]\n[systems.new]\nlike = "ref"\n'
    suite_file.with_name("systems.toml").write_text(systems)
    command = [str(Path(sysconfig.get_path("scripts")) / "autellix"), "bench", "compare", str(suite_file)]

    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as comparing:
        pid = int(pipe.read_text())  # comes once the system runs
        comparing.send_signal(signal.SIGINT)
        status = comparing.wait(END_S)

    assert 130 == status
    assert ends(pid)


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error names the command."""
    with pytest.raises(StackError, match="it: there is no command 'no-such-command'"):
        await started(System(command=("no-such-command",)), tmp_path / "log")


async def test_a_running_system_is_left_alone(tmp_path: Path) -> None:
    """Without a command the URL is all there is."""
    system = System(url="http://127.0.0.1:9")
    async with running("it", system, Shape(), here=tmp_path, log=tmp_path / "log") as url:
        assert "http://127.0.0.1:9" == url

    assert not (tmp_path / "log").exists()
