"""Durable calls from a program, the command line and over HTTP; and through the death of processes, on a stack."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from autellix.client import Program, cli
from autellix.client.connection import connect
from autellix.client.errors import CallFailedError
from autellix.client.plan import Plan
from autellix.client.queries import get_result
from autellix.client.stack import Stack
from tests.client.test_restarts import BODY, Killed

Output = pytest.CaptureFixture[str]
MESSAGES = [{"role": "user", "content": "Hi"}]
SLOW = Plan(
    model="tiny",
    engines=2,
    port=0,
    overrides=(
        "engine_worker.backend=simulated",
        "engine_worker.simulated_step_ms=50",
        "durable_calls.heartbeat_s=0.5",
    ),
)
LONG = {**BODY, "max_tokens": 60}


async def test_program(stack: Stack) -> None:
    """The same id from another program gets the same answer; other messages under it are refused."""
    answers = []
    for _ in range(2):
        async with Program("durable", nats_url=stack.nats_url) as program:
            answers.append(await program.chat(MESSAGES, durable_id="program-1", max_tokens=3))
    async with Program("durable", nats_url=stack.nats_url) as program:
        with pytest.raises(CallFailedError) as refused:
            await program.chat(MESSAGES, durable_id="program-1", max_tokens=4)

    assert answers[0] == answers[1]
    assert (refused.value.status, refused.value.error.code) == (409, "idempotency_conflict")


async def test_call_goes_on_without_its_caller(slow: Killed) -> None:
    """Cancelling the task that waits does not cancel a durable call."""
    async with Program("durable", nats_url=slow.stack.nats_url) as program:
        asking = asyncio.create_task(program.chat(MESSAGES, durable_id="left", max_tokens=20))
        connection = await connect(slow.stack.nats_url)
        async with asyncio.timeout(20):
            while await asked(connection, "left") is None:
                pass
            asking.cancel()
            while (found := await asked(connection, "left")).result is None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
        await connection.close()

    assert found.result.response["usage"]["completion_tokens"] == 20


async def asked(connection: Any, call_id: str) -> Any:
    """Return what became of a call, None if it is not known."""
    try:
        return await get_result(connection, call_id)
    except CallFailedError:
        return None


def test_command_line(stack: Stack, capsys: Output) -> None:
    """`submit --durable` prints an answer, again the same; `result` finds it, and says what it does not find."""
    submit = ["submit", "Hello", "--durable", "cli-1", "--max-tokens", "2", "--json", "--nats-url", stack.nats_url]
    assert [cli.main(submit), cli.main(submit)] == [0, 0]
    first, second = capsys.readouterr().out.splitlines()
    assert cli.main(["result", "cli-1", "--nats-url", stack.nats_url]) == 0
    text = capsys.readouterr().out
    assert cli.main(["result", "cli-1", "--json", "--nats-url", stack.nats_url]) == 0
    known = msgspec.json.decode(capsys.readouterr().out)

    assert first == second
    assert text.strip() == "ok ok"
    assert known["result"]["response"] == msgspec.json.decode(first)
    assert cli.main(["result", "nosuch", "--nats-url", stack.nats_url]) == 1
    assert "No durable call" in capsys.readouterr().err


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Killed]:
    """Return a stack of its own whose calls take a while."""
    async with Stack(SLOW) as stack:
        killed = Killed(stack, tmp_path, SLOW)
        yield killed
        await killed.close()


async def test_services_die_during_a_call(slow: Killed) -> None:
    """Whichever dies, and when all die at once, the client that waits gets the one answer that is kept."""
    all_of_them = ("durable-calls", "session-manager", "process-table", "load-balancer", "engine-0", "engine-1")
    async with httpx.AsyncClient(base_url=slow.stack.http_url, timeout=60) as http:
        for names in (("durable-calls",), ("session-manager",), all_of_them):
            headers = {"Idempotency-Key": "+".join(names)}
            asking = asyncio.create_task(http.post("/v1/chat/completions", json=LONG, headers=headers))
            async with asyncio.timeout(20):
                while (await http.get(f"/v1/calls/{headers['Idempotency-Key']}")).status_code != 202:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            for name in names:
                await slow.kill(name)
            for name in names:
                await slow.start(name)
            answer = await asking
            again = await http.post("/v1/chat/completions", json=LONG, headers=headers)
            kept = await http.get(f"/v1/calls/{headers['Idempotency-Key']}")

            assert answer.status_code == 200, (names, answer.text)
            assert answer.json() == again.json() == kept.json()
            assert again.headers["Idempotent-Replayed"] == "true"
