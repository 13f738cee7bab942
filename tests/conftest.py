"""Fixtures that every part of the test suite shares."""

import json
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"
START_S = 10.0


def written_url(ports: Path) -> str:
    """Return the URL in the file that the server writes once it listens."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        for file in ports.glob("*.ports"):
            if text := file.read_text():
                return str(json.loads(text)["nats"][0])
        time.sleep(0.01)
    raise TimeoutError("nats-server did not start")


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a real nats-server with JetStream, on a port of its own choice."""
    folder = tmp_path_factory.mktemp("nats")
    where = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder)]
    store = ["-js", "-sd", str(folder / "jetstream")]
    with (folder / "log").open("wb") as log, subprocess.Popen([SERVER, *where, *store], stderr=log) as server:
        try:
            yield written_url(folder)
        finally:
            server.kill()
