"""Agent frameworks on a real engine: the examples, in the frameworks' own environment, told a URL and nothing else."""

import asyncio
import json
import os
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from autellix.client.stack import Stack

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
EXAMPLES = ROOT / "client" / "examples" / "frameworks"

SAYS = {
    "with_openai": (["tool: It is sunny in", "stream:", "response:"], 3),
    "with_anthropic": (["message:", "stream:"], 2),
    "with_langgraph": (["plan:", "findings: 2", "answer:"], 6),
    "with_autogen": (["user:", "writer:", "critic:", "writer:", "critic:"], 4),
    "with_agents_sdk": (["responses:", "tools: 1", "chat:"], 3),
    "with_litellm": (["cities: 3", "stream:", "anthropic:"], 5),
}
"""What each example prints, and how many calls it makes."""


async def run(stack: Stack, example: str) -> tuple[int, str, str]:
    """Run an example as one program; return its status and what it printed."""
    command = [
        *(sysconfig.get_path("scripts") + "/autellix", "run", "--url", stack.http_url, "--nats-url", stack.nats_url),
        *("--agent", example, "--json", str(PYTHON), str(EXAMPLES / f"{example}.py")),
    ]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # it would look for prices on the net
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **quiet},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(150):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def test_every_example_is_tried() -> None:
    """An example that nobody runs is a promise."""
    assert {file.stem for file in EXAMPLES.glob("with_*.py")} == set(SAYS)


@pytest.mark.parametrize("example", SAYS)
async def test_example(stack: Stack, example: str) -> None:
    """It does what it is for, and all of its calls are one program, which is over with it."""
    status, out, err = await run(stack, example)
    assert status == 0, err[-3000:]
    beginnings, calls = SAYS[example]
    said = [line for line in out.splitlines() if line.startswith(tuple(beginnings))]
    record: dict[str, Any] = json.loads(err.splitlines()[-1])

    assert [line.startswith(each) for line, each in zip(said, beginnings, strict=True)] == [True] * len(beginnings), out
    expected = {"name": "python", "kind": example, "state": "ended", "calls": calls, "live_calls": 0}
    assert expected == {name: record[name] for name in expected}
    assert record["service_ms"] > 0
