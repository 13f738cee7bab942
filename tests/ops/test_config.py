"""The configuration that is shipped: what `autellix.toml` and `nats-server.conf` say is what the programs do."""

import asyncio
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import msgspec
import nats
import pytest

from autellix.client.nats_server import nats_url
from autellix.services.config import Config, load

OPS = Path(__file__).parents[2] / "ops"
TOML = OPS / "config" / "autellix.toml"
NATS_CONF = OPS / "nats" / "nats-server.conf"

NATS_SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"

KEYS = [
    (table, key) for table, settings in msgspec.structs.asdict(Config()).items() for key in settings.__struct_fields__
]


def test_shipped_settings_are_the_defaults() -> None:
    """Loading the shipped file changes nothing."""
    assert Config() == load(TOML)


@pytest.mark.parametrize(("table", "key"), KEYS, ids=[".".join(key) for key in KEYS])
def test_every_setting_is_shown(table: str, key: str) -> None:
    """Each setting stands in its table of the shipped file, commented out only where its default has no TOML value."""
    _, found, rest = TOML.read_text().partition(f"\n[{table}]\n")
    lines = rest.partition("\n[")[0].splitlines()
    no_value = getattr(getattr(Config(), table), key) is None

    assert found
    assert any(line.startswith(f"# {key} = " if no_value else f"{key} = ") for line in lines)


def test_nats_server_accepts_its_configuration() -> None:
    """The broker finds no fault with the shipped file."""
    done = subprocess.run([NATS_SERVER, "-t", "-c", NATS_CONF], capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stderr


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Path]:
    """Run a broker on the shipped file, but for the port and the store; yield its folder."""
    text = (
        NATS_CONF.read_text().replace("port: 4222", "port: -1").replace("/var/lib/autellix-nats", str(tmp_path / "js"))
    )
    conf = tmp_path / "nats-server.conf"
    conf.write_text(text)
    command = [str(NATS_SERVER), "-c", str(conf), "--ports_file_dir", str(tmp_path)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as server:
        yield tmp_path
        server.kill()


async def test_nats_server_keeps_the_promised_limits(broker: Path) -> None:
    """A broker that runs on the shipped file listens on loopback only and takes payloads of 8 MiB."""
    async with asyncio.timeout(10):
        url = await nats_url(broker)
        client = await nats.connect(url)
    payload = client.max_payload
    await client.close()

    assert url.startswith("nats://127.0.0.1:")
    assert 8 * 2**20 == payload
