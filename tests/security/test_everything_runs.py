"""Under the rules of `autellix access nats` everything works, and no service is refused anything."""

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest

from autellix.client import Program, cli
from autellix.client.plan import SERVICES
from autellix.client.stack import Stack
from tests.security.conftest import Secured

Output = pytest.CaptureFixture[str]
MESSAGES = [{"role": "user", "content": "Hi"}]
SNAPSHOTS_S = 4.0
"""By then each service that remembers has written a snapshot."""


async def test_nobody_is_refused_anything(
    stack: Stack,
    secured: Secured,
    keys: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: Output,
) -> None:
    """Programs, cancels, the command line, the gateway of an operator: the server had nothing against any of it."""
    monkeypatch.setenv("AUTELLIX_NATS_URL", stack.nats_url)
    for name, value in secured.environment(secured.user("operator")).items():
        monkeypatch.setenv(name, value)
    async with Program("of the operator", model="tiny") as program:
        await asyncio.gather(*(program.chat(MESSAGES, max_tokens=3) for _ in range(8)))
        durable = ["submit", "Hi", "--durable", "once", "--model", "tiny", "--max-tokens", "3"]
        assert 0 == await asyncio.to_thread(cli.main, durable)
        assert 0 == await asyncio.to_thread(cli.main, ["result", "once"])
        assert 0 == await asyncio.to_thread(cli.main, ["trace", program.id, "--out", str(tmp_path / "t.json")])
    for verb in (["ps", "--json"], ["show", program.id, "--json"], ["doctor", "--url", stack.http_url]):
        assert 0 == await asyncio.to_thread(cli.main, verb), capsys.readouterr()
    async with httpx.AsyncClient(base_url=stack.http_url, headers={"x-api-key": keys["*"]}) as http:
        metrics = await http.get("/metrics")
        assert "autellix_programs_started_total" in metrics.text
        started = (await http.post("/v1/programs", json={"name": "n"})).json()
        assert (await http.delete(f"/v1/programs/{started['id']}")).status_code == 204
    await asyncio.sleep(SNAPSHOTS_S)

    names = [f':{name}"' for name in (*SERVICES, "autellix-client")]
    violations = [line for line in secured.log.splitlines() if "iolation" in line]
    assert [] == [line for line in violations if any(name in line for name in names)]


async def test_state_is_kept(stack: Stack, secured: Secured) -> None:
    """The services that remember have written what they know."""
    client = await secured.connect(secured.user("session-manager"))
    until = time.monotonic() + 20
    kept: dict[str, int] = {}
    while not {"session-manager", "process-table"} <= set(kept) and time.monotonic() < until:
        subject = "$JS.API.STREAM.INFO.KV_AUTELLIX_STATE"
        answer = await client.request(subject, json.dumps({"subjects_filter": ">"}).encode())
        kept = {name.split(".")[2]: 1 for name in json.loads(answer.data)["state"].get("subjects", {})}
        await asyncio.sleep(0.2)
    await client.close()

    assert {"session-manager", "process-table"} <= set(kept)


async def test_command_line_without_a_key(secured: Secured, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """It says what is missing, and what would be wrong with a file that is none."""
    known = secured.environment(secured.user("operator"))
    for name, value in {**known, "AUTELLIX_NATS_NKEY": ""}.items():
        monkeypatch.setenv(name, value)
    assert 1 == await asyncio.to_thread(cli.main, ["ps", "--nats-url", secured.url])
    without = capsys.readouterr().err
    monkeypatch.setenv("AUTELLIX_NATS_NKEY", str(secured.folder / "ca.pem"))
    assert 1 == await asyncio.to_thread(cli.main, ["ps", "--nats-url", secured.url])
    wrong = capsys.readouterr().err

    assert "is AUTELLIX_NATS_NKEY set" in without
    assert "ca.pem holds no nkey seed" in wrong
