"""What goes wrong is counted: refused calls, unknown models, servers that are not there or go away."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from autellix.client.bench.load import Load
from autellix.client.bench.measures import summarize
from autellix.client.bench.replay import replay
from autellix.client.bench.targets import OpenAITarget, TargetError
from autellix.client.errors import AutellixError
from autellix.client.plan import Plan
from autellix.client.stack import Stack
from autellix.schemas import subjects
from tests.client.bench.conftest import TARGETS, call, every_target, load_of, records, replayed, write_trace


@every_target
async def test_unknown_model_fails_every_program(stack: Stack, trace: str, kind: str) -> None:
    """A model that nobody serves is each program's error, is counted, and leaves no program behind."""
    before = await records(stack)
    target = TARGETS[kind](stack)
    async with target:
        target.model = "nosuch"  # type: ignore[attr-defined]
        run = await replay(load_of(trace), target, warm_up=0)
    summary = summarize(run)

    assert (4, 0) == (summary.errors, summary.finished)
    assert all("'nosuch' does not exist" in row.error for row in run.rows)
    assert {0} == {row.calls for row in run.rows}
    assert {"ended"} >= {record.state for record in await records(stack, before)}


async def test_warm_up_that_fails_ends_the_run(stack: Stack, trace: str) -> None:
    """What cannot even warm up is not measured."""
    with pytest.raises(AutellixError, match="'nosuch' does not exist"):
        await replayed(OpenAITarget(stack.http_url, model="nosuch"), load_of(trace), warm_up=1)


async def test_call_that_is_refused_ends_its_program(stack: Stack, tmp_path: Path) -> None:
    """A program that the gateway refuses a call ends at once, whatever it had before it; the other one goes on."""
    broken = [call(0), call(1, parents=[0], interrupt_s=30.0), call(2, parents=[0], prompt_tokens=1_200_000)]
    trace = write_trace(tmp_path / "t.jsonl.gz", [call(0)], broken)
    before = await records(stack)
    run = await replayed(TARGETS["gateway"](stack), Load(workload=trace, programs=2, rate_per_s=None))
    failed, whole = sorted(run.rows, key=lambda row: row.error, reverse=True)
    found = await records(stack, before)

    assert ("p1", "p0", "") == (failed.name, whole.name, whole.error)
    assert failed.error.endswith("(status 413)")
    assert run.took_s < 30
    assert {"ended"} == {record.state for record in found}


@pytest.fixture
async def own_stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """Return a stack whose processes a test may kill."""
    plan = Plan(model="tiny", port=0, overrides=("engine_worker.backend=simulated",), log_dir=tmp_path / "logs")
    async with Stack(plan) as stack:
        yield stack


def kill_gateway(stack: Stack) -> None:
    """Kill the gateway of a stack and return when it is dead, unless it was before."""
    (gateway,) = (child for child in stack.children if child.name == "gateway")
    if gateway._process.returncode is not None:
        return
    with suppress(ProcessLookupError, ChildProcessError):  # reaped, but asyncio has not heard of it
        os.kill(gateway.pid, signal.SIGKILL)
        os.waitid(os.P_PID, gateway.pid, os.WEXITED | os.WNOWAIT)


async def test_server_that_goes_away_fails_what_comes_after(own_stack: Stack, trace: str) -> None:
    """When the gateway is killed after the first program, the run ends with the others as errors."""
    load = Load(workload=trace, programs=4, live_programs=1)
    async with TARGETS["gateway"](own_stack) as target:
        run = await replay(load, target, on_program_over=lambda: kill_gateway(own_stack), warm_up=1)
    summary = summarize(run)

    assert [False, True, True, True] == [bool(row.error) for row in run.rows]
    assert 3 == summary.errors


async def test_server_that_dies_fails_the_call(own_stack: Stack) -> None:
    """A call that is being answered when the gateway dies is an error, not a short answer."""
    started = asyncio.Event()
    client = await nats.connect(own_stack.nats_url)

    async def on_event(_: Msg) -> None:
        started.set()

    await client.subscribe(f"{subjects.CALL_EVENTS.removesuffix('*')}started", cb=on_event)
    await client.flush()
    target = TARGETS["openai"](own_stack)
    async with target, target.program("p", "a") as link:
        answer = asyncio.create_task(link.call([300], max_tokens=30_000, thread="t1", parents=[]))
        await started.wait()
        kill_gateway(own_stack)
        with pytest.raises(TargetError):
            await answer
    await client.close()


async def test_redirect_is_an_error(stack: Stack) -> None:
    """A call that is sent elsewhere is not followed there: another server would be measured."""

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        location = f"Location: {stack.http_url}/v1/completions"
        writer.write(f"HTTP/1.1 307 Temporary Redirect\r\n{location}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(elsewhere, "127.0.0.1", 0) as server:
        target = OpenAITarget(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", model="tiny")
        async with target, target.program("p", "a") as link:
            with pytest.raises(TargetError, match="status 307"):
                await link.call([300], max_tokens=2, thread="t1", parents=[])


async def test_missing_server_is_an_error() -> None:
    """A target that cannot be reached says so when it is entered."""
    with pytest.raises(TargetError, match=r"^http://127\.0\.0\.1:9/v1/models: "):
        await OpenAITarget("http://127.0.0.1:9").__aenter__()
