"""One whole stack with one real vLLM engine, shared by every test here: an engine start costs 20 s.

The engine has two slots and computes in float32: two is the smallest number that shows who displaces whom, and in
bfloat16 the composition of a batch can flip a token, so that outputs could not be compared.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from autellix.client.plan import Plan
from autellix.client.stack import Stack

MODEL = "tiny"

PLAN = Plan(
    model=MODEL,
    policy="plas",
    port=0,
    overrides=(
        "engine_worker.slots=2",
        "engine_worker.first_quantum_ms=50.0",
        "engine_worker.max_model_len=2048",
        "engine_worker.heartbeat_s=0.2",
        'engine_worker.vllm_args=["--dtype", "float32", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]',
    ),
)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Return what the stack consists of, for a test that needs one of its own."""
    return replace(PLAN, log_dir=tmp_path)


@pytest.fixture(scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """Return the running stack; that it stops cleanly is part of every run."""
    async with Stack(replace(PLAN, log_dir=tmp_path_factory.mktemp("logs"))) as running:
        yield running
    assert {child.name: 0 for child in running.children} == {
        child.name: await child.ended() for child in running.children
    }
