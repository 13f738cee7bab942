"""`autellix drain` and `resume`, on a stack with two simulated engines."""

import asyncio
import json

import pytest

from autellix.client import Program, cli
from autellix.client.cli.drain import STILL_BUSY
from autellix.client.stack import Stack

Output = pytest.CaptureFixture[str]
MESSAGES = [{"role": "user", "content": "Hi"}]


async def ran(stack: Stack, *arguments: str) -> int:
    """Return the exit status of a command."""
    return await asyncio.to_thread(cli.main, [*arguments, "--nats-url", stack.nats_url])


async def engines_of_calls(stack: Stack, count: int) -> set[str]:
    """Return where so many calls of programs of their own ran."""
    used: set[str] = set()
    for _ in range(count):
        async with Program("drain", model="tiny", nats_url=stack.nats_url) as program:
            answer = await program.chat(MESSAGES, max_tokens=2)
        used.add(str(answer.call.engine_id))
    return used


async def test_drain_and_resume(stack: Stack, capsys: Output) -> None:
    """What is new goes to the other engine until it is resumed."""
    assert 0 == await ran(stack, "drain", "engine-1", "--json")
    drained = json.loads(capsys.readouterr().out)
    while_drained = await engines_of_calls(stack, 6)
    assert 0 == await ran(stack, "resume", "engine-1")
    said = capsys.readouterr().out
    async with asyncio.timeout(10):
        while await engines_of_calls(stack, 4) != {"engine-0", "engine-1"}:
            pass

    assert ("engine-1", "draining") == (drained["engine_id"], drained["state"])
    assert {"engine-0"} == while_drained
    assert "engine-1 ready, 0 calls\n" == said


async def test_drain_waits(stack: Stack, capsys: Output) -> None:
    """With --wait it returns when the engine has finished, at the latest after that time, with status 3."""
    assert 0 == await ran(stack, "drain", "engine-0")
    async with Program("drain", model="tiny", nats_url=stack.nats_url) as program:
        long = asyncio.create_task(program.chat(MESSAGES, max_tokens=500_000))
        async with asyncio.timeout(10):
            while not json.loads(await shown(stack, capsys))["engines"][1]["calls"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert STILL_BUSY == await ran(stack, "drain", "engine-1", "--wait", "0.5")
        long.cancel()
        assert 0 == await ran(stack, "drain", "engine-1", "--wait", "20")
    for engine in ("engine-0", "engine-1"):
        assert 0 == await ran(stack, "resume", engine)


async def shown(stack: Stack, capsys: Output) -> str:
    """Return what `autellix ps` tells a script."""
    capsys.readouterr()
    await ran(stack, "ps", "--json")
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["engine-9", "no such engine", "*", ">"])
async def test_engine_that_is_not_there(stack: Stack, capsys: Output, name: str) -> None:
    """It is said in a sentence, with status 1, and nobody else is drained."""
    assert 1 == await ran(stack, "drain", name)
    assert "No engine" in capsys.readouterr().err
