"""`autellix doctor` and `top`: on a stack with simulated engines, and where there is none."""

import json
from typing import Any

import pytest

from autellix.client import cli
from autellix.client.plan import SERVICES
from autellix.client.stack import Stack
from autellix.client.tokens import TokenRates
from autellix.schemas.ids import ProgramId
from autellix.schemas.table import ProgramList, ProgramRecord

Output = pytest.CaptureFixture[str]


def by_part(text: str) -> dict[str, Any]:
    """Return the findings as they were printed, by what they are about."""
    return {finding["about"]: finding for finding in json.loads(text)}


def test_all_is_well(stack: Stack, capsys: Output) -> None:
    """On a whole stack every part answers, and nothing is bad."""
    options = ["--nats-url", stack.nats_url, "--url", f"http://127.0.0.1:{stack.port}/"]
    assert cli.main(["doctor", "--json", *options]) == 0
    found = by_part(capsys.readouterr().out)
    assert cli.main(["doctor", *options]) == 0

    assert {found[name]["state"] for name in (*SERVICES, "NATS", "HTTP", "events", "engine-0")} == {"good"}
    assert "2 answer" in found["engine-worker"]["text"]
    assert "engine-1" in capsys.readouterr().out


def test_nothing_is_there(capsys: Output) -> None:
    """Without a server and a gateway both are named, each with what to do, and the status says it."""
    options = ["--nats-url", "nats://127.0.0.1:9", "--url", "http://127.0.0.1:9"]
    assert cli.main(["doctor", "--json", *options]) == 1
    found = by_part(capsys.readouterr().out)

    assert [found[part]["state"] for part in ("NATS", "HTTP")] == ["bad", "bad"]
    assert found["NATS"]["hint"]


def test_other_server_than_a_gateway(stack: Stack, capsys: Output) -> None:
    """What answers at the URL but is no gateway is told from one that is not ready."""
    options = ["--nats-url", stack.nats_url, "--url", f"http://127.0.0.1:{stack.port}/v1"]
    assert cli.main(["doctor", "--json", *options]) == 1

    assert "is it a gateway?" in by_part(capsys.readouterr().out)["HTTP"]["text"]


def test_top(stack: Stack, capsys: Output) -> None:
    """It shows as often as asked, for people and as lines of JSON."""
    often = ["--every", "0.05", "--times", "2", "--nats-url", stack.nats_url]
    assert cli.main(["top", *often]) == 0
    assert "engine-1" in capsys.readouterr().out
    assert cli.main(["top", "--json", *often]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert len(lines) == 2
    assert {engine["engine_id"] for engine in lines[0]["engines"]} == {"engine-0", "engine-1"}


def test_token_rates() -> None:
    """Tokens are counted between looks; a program that was not there before began with none."""

    def look(at_ms: float, **tokens: int) -> ProgramList:
        rows = [
            ProgramRecord(program_id=ProgramId(name), started_at_ms=0.0, output_tokens=count)
            for name, count in tokens.items()
        ]
        return ProgramList(programs=rows, at_ms=at_ms)

    rates = TokenRates()
    rates.add(look(1000.0, a=10))
    first = rates.of(ProgramId("a"))
    rates.add(look(3000.0, a=30, b=8))

    assert [first, rates.of(ProgramId("a")), rates.of(ProgramId("b"))] == [0.0, 10.0, 4.0]
    assert rates.of(ProgramId("gone")) == 0.0
