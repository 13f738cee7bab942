"""What is left when an engine worker is killed: nothing of it, and an end to each of its calls."""

import asyncio

import psutil
import pytest

from autellix.client import CallFailedError, Program
from autellix.client.plan import Plan
from autellix.client.stack import Stack

pytestmark = pytest.mark.vllm


async def test_killed_worker_takes_its_engine_along_and_its_calls_end(plan: Plan) -> None:
    """After SIGKILL no process of the engine survives, and the running call ends in one error that says so."""
    async with Stack(plan) as stack, Program("bereft", nats_url=stack.nats_url) as program:
        worker = psutil.Process(next(child.pid for child in stack.children if child.name == "engine-0"))
        family = worker.children(recursive=True)
        stream = aiter(program.stream([{"role": "user", "content": "Hi"}], max_tokens=1900, ignore_eos=True))
        await anext(stream)
        worker.kill()
        with pytest.raises(CallFailedError) as failed:
            async for _ in stream:
                pass
        _, left = await asyncio.to_thread(psutil.wait_procs, family, timeout=10)
    alive = [process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    assert (failed.value.status, failed.value.error.code) == (503, "engine_lost")
    assert len(family) >= 2
    assert alive == []
