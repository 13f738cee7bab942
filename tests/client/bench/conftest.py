"""A small trace, a program whose calls branch and join, and each way to replay it on a stack."""

import asyncio
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from autellix.client.bench.load import Load, Scale
from autellix.client.bench.measures import Run
from autellix.client.bench.replay import replay
from autellix.client.bench.targets import GatewayTarget, NatsTarget, OpenAITarget, Target
from autellix.client.connection import shared
from autellix.client.queries import list_programs
from autellix.client.stack import Stack
from autellix.schemas.table import ProgramRecord
from autellix.schemas.traces.records import TraceCall, TraceProgram
from autellix.schemas.traces.workloads import Arrival


def call(number: int, **fields: Any) -> dict[str, Any]:
    """Return a call of a trace: 60 tokens after a system prompt of 20, and 8 tokens of answer."""
    defaults = {
        "parents": [],
        "prompt_tokens": 60,
        "shared_prefix_tokens": 0,
        "system_tokens": 20,
        "output_tokens": 8,
        "interrupt_s": 0.0,
    }
    return {"id": number, **defaults, **fields}


FORK = [
    call(0),
    call(1, parents=[0], prompt_tokens=100, shared_prefix_tokens=68, interrupt_s=0.01),
    call(2, parents=[0], prompt_tokens=90, shared_prefix_tokens=68),
    call(3, parents=[1, 2], prompt_tokens=200, shared_prefix_tokens=108),
]
"""One call, then two beside each other, then one that waits for both and goes on from the first of them."""


def program_of(*calls: dict[str, Any], name: str = "p", group: str = "g") -> TraceProgram:
    """Return a program of these calls."""
    return TraceProgram(
        program_id=name,
        calls=tuple(TraceCall(**{**each, "parents": tuple(each["parents"])}) for each in calls),
        prefix_group=group,
    )


def arrival_of(*calls: dict[str, Any], name: str = "p", group: str = "g") -> Arrival:
    """Return the arrival of a program of these calls."""
    return Arrival(0.0, "trace", program_of(*calls, name=name, group=group))


def write_trace(file: Path, *programs: list[dict[str, Any]]) -> str:
    """Write a trace of these programs, all of one group, and return its path."""
    lines = [{"program_id": f"p{n}", "prefix_group": "g", "calls": calls} for n, calls in enumerate(programs)]
    with gzip.open(file, "wt") as out:
        out.writelines(f"{json.dumps(line)}\n" for line in lines)
    return str(file)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Return the path of a trace of four programs that branch and join."""
    return write_trace(tmp_path / "fork.jsonl.gz", *[FORK] * 4)


TARGETS: dict[str, Callable[[Stack], Target]] = {
    "openai": lambda stack: OpenAITarget(stack.http_url),
    "gateway": lambda stack: GatewayTarget(f"{stack.http_url}/v1/"),
    "nats": lambda stack: NatsTarget(stack.nats_url),
}
every_target = pytest.mark.parametrize("kind", TARGETS)


def load_of(trace: str) -> Load:
    """Return four programs that arrive one after the other, and overlap."""
    return Load(workload=trace, programs=4, rate_per_s=200.0, scale=Scale(interrupts=0.5))


async def replayed(target: Target, load: Load, *, warm_up: int = 0) -> Run:
    """Return the run of a load."""
    async with target:
        return await replay(load, target, warm_up=warm_up)


async def records(stack: Stack, before: Sequence[ProgramRecord] | None = None) -> list[ProgramRecord]:
    """Return what the process table knows; with `before`, of other programs than those, once none of them is live.

    Events are on their way for a moment after a program's end was confirmed; it gives up after ten seconds.
    """
    known = {record.program_id for record in before or ()}
    async with shared(stack.nats_url) as connection:
        for _ in range(100):
            listed = await list_programs(connection, with_threads=True)
            found = [record for record in listed.programs if record.program_id not in known]
            if before is None or all(record.state == "ended" and not record.live_calls for record in found):
                break
            await asyncio.sleep(0.1)
    return found
