"""systemd's readiness protocol (`sd_notify(3)`): a datagram to the socket that the manager names."""

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Tell systemd `READY=1`, `STOPPING=1` or a status; without systemd do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), address)  # a manager that is gone is no reason to fail
