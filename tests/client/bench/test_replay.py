"""Programs replayed through a whole pipeline with simulated engines: by HTTP, by the gateway's sessions, by NATS."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg

from autellix.client.bench.load import Load, Scale
from autellix.client.bench.measures import summarize
from autellix.client.bench.replay import replay
from autellix.client.bench.targets import Answered, Link, OpenAITarget, Target
from autellix.client.stack import Stack
from autellix.schemas import subjects
from autellix.schemas.codec import Decoder
from autellix.schemas.events import CallSubmitted
from autellix.schemas.requests import SubmitCall
from tests.client.bench.conftest import TARGETS, every_target, load_of, records, replayed


class Heard:
    """A target that notes what is said through it."""

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self.said: dict[str, list[tuple[tuple[int, ...], Answered]]] = {}
        self._target = target

    async def __aenter__(self) -> "Heard":
        """Connect."""
        await self._target.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._target.__aexit__()

    @asynccontextmanager
    async def program(self, name: str, agent: str) -> AsyncIterator[Link]:
        """Begin a program."""
        said = self.said.setdefault(name, [])
        async with self._target.program(name, agent) as link:

            class Noting:
                async def call(
                    self, prompt: Sequence[int], *, max_tokens: int, thread: str, parents: Sequence[str]
                ) -> Answered:
                    answered = await link.call(prompt, max_tokens=max_tokens, thread=thread, parents=parents)
                    said.append((tuple(prompt), answered))
                    return answered

            yield Noting()

    @property
    def texts(self) -> dict[str, set[tuple[tuple[int, ...], tuple[int, ...]]]]:
        """Return each program's prompts and answers."""
        return {name: {(prompt, tuple(each.tokens)) for prompt, each in said} for name, said in self.said.items()}


@every_target
async def test_all_calls_are_made(stack: Stack, trace: str, kind: str) -> None:
    """Every program makes its four calls, with all tokens of prompts and answers, and the numbers are whole."""
    run = await replayed(TARGETS[kind](stack), load_of(trace), warm_up=2)
    summary = summarize(run)

    assert [(4, 450, 32, "")] * 4 == [(row.calls, row.prompt_tokens, row.output_tokens, row.error) for row in run.rows]
    assert {"p0", "p1", "p2", "p3"} == {row.name for row in run.rows}
    assert all(0.005 <= row.makespan_s <= run.took_s for row in run.rows)
    assert all(0 < row.waited_s for row in run.rows)
    assert (0, 0) == (summary.errors, summary.short_answers)
    assert summary.slowdown is not None
    assert summary.token_latency_ms is not None


async def test_every_target_gets_the_same_texts(stack: Stack, trace: str) -> None:
    """What is asked, and so what is answered, does not depend on the way there, nor on time."""
    heard = [Heard(TARGETS[kind](stack)) for kind in TARGETS]
    for target in heard:
        await replayed(target, load_of(trace))

    assert heard[0].texts == heard[1].texts == heard[2].texts
    assert 4 == len(heard[0].texts)
    assert {4} == {len(texts) for texts in heard[0].texts.values()}


async def test_prompts_go_on_from_real_answers(stack: Stack, trace: str) -> None:
    """The prompt behind a join begins with a whole prompt and the answer that was given to it."""
    target = Heard(TARGETS["nats"](stack))
    await replayed(target, load_of(trace))
    by_size = {len(prompt): (prompt, each.tokens) for prompt, each in target.said["program-0"]}

    assert (*by_size[100][0], *by_size[100][1]) == by_size[200][0][:108]
    assert [333] * 8 == by_size[100][1]


@pytest.mark.parametrize("kind", ["gateway", "nats"])
async def test_programs_have_threads_and_an_end(stack: Stack, trace: str, kind: str) -> None:
    """The process table has each program under its name and kind, with both threads, ended and with nothing live."""
    before = await records(stack)
    at_once = Scale(interrupts=0.0)  # so that both branches begin before either is answered
    await replayed(TARGETS[kind](stack), Load(workload=trace, programs=4, rate_per_s=200.0, scale=at_once))
    found = await records(stack, before)

    assert ["program-0", "program-1", "program-2", "program-3"] == sorted(record.name[:9] for record in found)
    for record in found:
        assert ("ended", 0, 4, "fork") == (record.state, record.live_calls, record.calls, record.kind)
        assert {"t1": 3, "t2": 1} == {name: thread.calls for name, thread in record.threads.items()}


async def test_parents_are_told(stack: Stack, trace: str) -> None:
    """Over NATS each call names the calls that it waited for, by the ids that they were given."""
    submitted: asyncio.Queue[CallSubmitted] = asyncio.Queue()
    decoder: Decoder[CallSubmitted] = Decoder(CallSubmitted)
    client = await nats.connect(stack.nats_url)

    async def on_event(msg: Msg) -> None:
        submitted.put_nowait(decoder.decode(msg.data))

    await client.subscribe("autellix.events.call.submitted", cb=on_event)
    await client.flush()
    await replayed(TARGETS["nats"](stack), Load(workload=trace, programs=1))
    first, *branches, last = [await submitted.get() for _ in range(4)]
    await client.close()

    assert () == first.parents
    assert [(first.call_id,)] * 2 == [branch.parents for branch in branches]
    assert {branch.call_id for branch in branches} == set(last.parents)


@every_target
async def test_answers_are_forced_to_their_length(stack: Stack, trace: str, kind: str) -> None:
    """Each call asks for exactly the recorded answer, of ids and with its usage, and for nothing random."""
    bodies = await submitted_bodies(stack, TARGETS[kind](stack), Load(workload=trace, programs=1))
    wanted: dict[str, Any] = {
        "max_tokens": 8,
        "min_tokens": 8,
        "ignore_eos": True,
        "temperature": 0,
        "return_token_ids": True,
    }
    wanted |= {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}}

    assert [60, 90, 100, 200] == sorted(len(body.pop("prompt")) for body in bodies)
    assert [wanted] * 4 == bodies


async def test_priority_is_the_number_of_calls(stack: Stack, trace: str) -> None:
    """For a server with priority scheduling each call tells how many its program made before it."""
    target = OpenAITarget(stack.http_url, priority="calls")
    bodies = await submitted_bodies(stack, target, Load(workload=trace, programs=1))

    assert [0, 1, 2, 3] == [body["priority"] for body in bodies]


async def submitted_bodies(stack: Stack, target: Target, load: Load) -> list[dict[str, Any]]:
    """Return the requests that reach the pipeline while a load runs, in order."""
    bodies: list[dict[str, Any]] = []
    decoder: Decoder[SubmitCall] = Decoder(SubmitCall)
    client = await nats.connect(stack.nats_url)

    async def on_submit(msg: Msg) -> None:
        bodies.append(decoder.decode(msg.data).body)

    await client.subscribe(subjects.CALLS_SUBMIT, cb=on_submit)
    await client.flush()
    await replayed(target, load)
    await client.drain()
    return bodies


async def test_closed_loop_has_so_many_at_a_time(stack: Stack, trace: str) -> None:
    """With live programs the next one arrives when another is over."""
    load = Load(workload=trace, programs=4, live_programs=1)
    over: list[None] = []
    async with TARGETS["nats"](stack) as target:
        run = await replay(load, target, on_program_over=lambda: over.append(None), warm_up=0)

    ends = [0.0, *(row.ended_s for row in run.rows)]
    assert all(ended <= row.arrived_s for ended, row in zip(ends, run.rows, strict=False))
    assert 4 == len(over)


async def test_programs_may_be_asked_as_texts(stack: Stack, trace: str) -> None:
    """A server that takes no ids gets texts, and answers to the end."""
    run = await replayed(OpenAITarget(stack.http_url, prompts="text"), load_of(trace), warm_up=1)

    assert [(4, 32, "")] * 4 == [(row.calls, row.output_tokens, row.error) for row in run.rows]
