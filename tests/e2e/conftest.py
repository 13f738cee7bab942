"""One whole stack with one real vLLM engine, shared by every test here: an engine start costs 20 s.

The engine has two slots and computes in float32: two is the smallest number that shows who displaces whom, and in
bfloat16 the composition of a batch can flip a token, so that outputs could not be compared.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest

from autellix.client.plan import Plan
from autellix.client.stack import Stack
from tests.e2e.collector import Collector, collecting

MODEL = "tiny"

GRAMMARS = '{"backend": "xgrammar", "disable_any_whitespace": true}'
"""A model of random weights likes nothing better than blanks between the parts of an object, without an end."""
VLLM_ARGS = ["--dtype", "float32", "--structured-outputs-config", GRAMMARS]

PLAN = Plan(
    model=MODEL,
    policy="plas",
    port=0,
    overrides=(
        "engine_worker.slots=2",
        "engine_worker.first_quantum_ms=50.0",
        "engine_worker.max_model_len=2048",
        "engine_worker.heartbeat_s=0.2",
        f"engine_worker.vllm_args={VLLM_ARGS}",
    ),
)


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Return what the spans of the stack are sent to."""
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> AsyncIterator[Stack]:
    """Return the running stack; that it stops cleanly is part of every run."""
    async with AsyncExitStack() as life:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
            running = await life.enter_async_context(Stack(replace(PLAN, log_dir=tmp_path_factory.mktemp("logs"))))
        yield running
    assert {child.name: 0 for child in running.children} == {
        child.name: await child.ended() for child in running.children
    }


@pytest.fixture
async def http(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    """Return a bare client of the gateway."""
    async with httpx.AsyncClient(base_url=stack.http_url, timeout=60) as client:
        yield client
