"""systemd is told in its own protocol, and only where it listens."""

import socket
import tempfile
from pathlib import Path

import pytest

from autellix.services.notify import notify


def received(listener: socket.socket) -> str:
    """Return the one message that has come."""
    listener.settimeout(5)
    return listener.recv(100).decode()


@pytest.mark.parametrize("abstract", [True, False])
def test_notify(monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A state is one datagram to the socket that the environment names, in the file system or abstract."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = str(Path(folder) / "notify")
        listener.bind("\0" + path if abstract else path)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + path if abstract else path)
        notify("READY=1")

        assert received(listener) == "READY=1"


@pytest.mark.parametrize("address", ["", "/nonexistent/socket"])
def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Without systemd, or with one that is gone, nothing happens."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")

    assert not Path("/nonexistent").exists()
