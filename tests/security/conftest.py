"""A stack with simulated engines on a NATS server that asks everybody who they are, under TLS both ways."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import nats
import pytest
import trustme
from nats.aio.client import Client

from autellix.client.plan import Plan
from autellix.client.stack import Stack, free_port
from autellix.schemas.nats_access import Access, options
from autellix.services.access.__main__ import main as access
from tests.conftest import SERVER, written_url

TENANTS = ("acme", "zen")
SERVER_CONFIG = """
host: 127.0.0.1
port: {port}
ports_file_dir: "{folder}"
max_payload: 8MB
jetstream {{ store_dir: "{folder}/jetstream" }}
include "access/nats-access.conf"
tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key", ca_file: "{folder}/ca.pem", verify: true }}
"""


@dataclass
class Secured:
    """Where everything is."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        """Return where the server listens."""
        return f"tls://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Return what the server said."""
        return (self.folder / "server.log").read_text()

    @property
    def api_keys(self) -> Path:
        """Return the gateway's file of keys."""
        return self.folder / "api-keys"

    def user(self, name: str) -> Access:
        """Return how a user of the services' account is known: by the name of its file."""
        return self._known_by(self.folder / "access" / f"{name}.nk")

    def tenant(self, name: str) -> Access:
        """Return how a tenant's agents are known."""
        return self._known_by(self.folder / "access" / "tenants" / f"{name}.nk")

    def _known_by(self, nkey: Path) -> Access:
        certificate = (str(self.folder / f"client.{ending}") for ending in ("pem", "key"))
        return Access(str(nkey), str(self.folder / "ca.pem"), *certificate)

    async def connect(self, who: Access, **more: object) -> Client:
        """Return a connection of plain nats-py."""
        return await nats.connect(self.url, allow_reconnect=False, **{**options(who), **more})

    def environment(self, who: Access) -> dict[str, str]:
        """Return what tells the client library who it is."""
        names = ("NKEY", "CA", "CERTIFICATE", "CERTIFICATE_KEY")
        return {f"AUTELLIX_NATS_{name}": value for name, value in zip(names, who, strict=True)}

    def settings(self) -> str:
        """Return what `autellix.toml` says."""
        who = self.user("gateway")
        return (
            f'[nats]\nnkeys = "{self.folder / "access"}"\nca = "{who.ca}"\n'
            f'certificate = "{who.certificate}"\ncertificate_key = "{who.certificate_key}"\n'
            f'[gateway]\napi_keys = "{self.api_keys}"\n'
            '[engine_worker]\nbackend = "simulated"\nsimulated_step_ms = 1\n'
        )


def certificates(folder: Path) -> None:
    """Write an authority's certificate, a server's and a client's."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")


@contextmanager
def running(folder: Path, port: int) -> Iterator[None]:
    """Run the server of a folder for as long as the context lasts."""
    (folder / "server.conf").write_text(SERVER_CONFIG.format(port=port, folder=folder))
    with ExitStack() as life:
        log = life.enter_context((folder / "server.log").open("wb"))
        server = subprocess.Popen([SERVER, "-c", folder / "server.conf"], stderr=log)
        life.callback(server.wait)
        life.callback(server.kill)
        written_url(folder)
        yield


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Return a server that lets in only whom it knows."""
    folder = tmp_path_factory.mktemp("secured")
    certificates(folder)
    assert access(["nats", str(folder / "access"), *(part for name in TENANTS for part in ("--tenant", name))]) == 0
    port = free_port()
    with running(folder, port):
        yield Secured(folder, port)


@pytest.fixture(scope="session")
def keys(secured: Secured) -> dict[str, str]:
    """Return an API key of each tenant, and of the operator as `*`."""
    made = {}
    for name in (*TENANTS, "*"):
        whose = ["--operator"] if name == "*" else [name]
        command = [sys.executable, "-m", "autellix.services.access", "key", str(secured.api_keys), *whose]
        made[name] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return made


@pytest.fixture(scope="session")
async def stack(secured: Secured, keys: dict[str, str]) -> AsyncIterator[Stack]:
    """Return a whole stack on that server."""
    config = secured.folder / "autellix.toml"
    config.write_text(secured.settings())
    plan = Plan(model="tiny", engines=2, port=0, nats_url=secured.url, config=config, log_dir=secured.folder / "logs")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in secured.environment(secured.user("operator")).items():
            patch.setenv(name, value)
        async with Stack(plan) as stack:
            yield stack
