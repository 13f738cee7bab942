"""Replays a load against a target: warm-up, then every program at its time, until all are over."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from autellix.client.bench import machine
from autellix.client.bench.idle import Idle, Sample, fit
from autellix.client.bench.load import Load, programs_of, warm_up_of
from autellix.client.bench.measures import ProgramRow, Run
from autellix.client.bench.pace import Pace
from autellix.client.bench.program import Replayed
from autellix.client.bench.targets import Answered, Target
from autellix.client.bench.texts import Texts, known_tokens
from autellix.client.errors import AutellixError
from autellix.schemas.traces.records import TraceCall
from autellix.schemas.traces.workloads import Arrival

WARM_UP_CALLS = 24
"""At most so many of each program that warms up."""


def _nobody_listens() -> None:
    """Stand in where nobody wants to know that a program is over."""


async def replay(
    load: Load, target: Target, *, on_program_over: Callable[[], None] = _nobody_listens, warm_up: int = 4
) -> Run:
    """Run a load and return how its programs fared.

    With a rate, programs arrive at their times whatever becomes of those before (open loop); with `live_programs`, the
    next arrives when one is over (closed loop). A program that fails is a row with an error.

    Args:
        load: What to run.
        target: Against what; it is entered.
        on_program_over: Told of each program that is over.
        warm_up: Programs that are run first, one call at a time and not measured, to warm the system up and to learn
            how fast it is when idle (see `idle`; from all but the first).

    Raises:
        LoadError: when the load makes no sense.
        AutellixError: when a call of the warm-up fails.
    """
    arriving, texts = programs_of(load), Texts(load.seed, load.edition)
    idle = await _idle(target, warm_up_of(load, warm_up), texts)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    running = _Running(load, target, texts, idle, on_program_over)
    async with Pace() as pace:
        rows = await running.all(arriving)
    return Run(
        load=load,
        system=target.name,
        started_at=started_at,
        machine=machine.described(),
        pace_ms=pace.ms,
        took_s=max((row.ended_s for row in rows), default=0.0),
        idle=idle,
        rows=rows,
    )


class _Running:
    """The programs of one run."""

    def __init__(
        self, load: Load, target: Target, texts: Texts, idle: Idle | None, on_program_over: Callable[[], None]
    ) -> None:
        self._load = load
        self._target = target
        self._texts = texts
        self._idle = idle
        self._on_program_over = on_program_over
        self._places = asyncio.Semaphore(load.live_programs or load.programs)
        self._began_s = time.perf_counter()

    async def all(self, arriving: Sequence[Arrival]) -> list[ProgramRow]:
        """Run all programs, each at its time."""
        tasks: list[asyncio.Task[ProgramRow]] = []
        self._began_s = time.perf_counter()
        async with asyncio.TaskGroup() as programs:
            for number, arrival in enumerate(arriving):
                arrived_s = await self._arrived_s(arrival.at_ms / 1000)
                tasks.append(programs.create_task(self._run(number, arrival, arrived_s)))
        return [task.result() for task in tasks]

    async def _arrived_s(self, due_s: float) -> float:
        """Return once a program has arrived, and when it did: when it was due, were this client late."""
        await self._places.acquire()
        now_s = time.perf_counter() - self._began_s
        if due_s == inf:
            return now_s
        await asyncio.sleep(max(0.0, due_s - now_s))
        return due_s

    async def _run(self, number: int, arrival: Arrival, arrived_s: float) -> ProgramRow:
        name = f"program-{number}"
        cap_s = self._load.scale.interrupt_cap_s
        replayed = Replayed(name, arrival, self._texts, interrupt_cap_s=cap_s, idle=self._idle)
        try:
            async with self._target.program(name, agent_of(arrival)) as link:
                await replayed.run(link)
                row = replayed.row(self._began_s, arrived_s)
        except AutellixError as error:  # it could not even begin
            replayed.error = str(error)
            row = replayed.row(self._began_s, arrived_s)
        self._places.release()
        self._on_program_over()
        return row


def agent_of(arrival: Arrival) -> str:
    """Return what kind of agent a program is: its trace says it."""
    return Path(arrival.trace).name.removesuffix(".jsonl.gz")


async def _idle(target: Target, programs: Sequence[Arrival], texts: Texts) -> Idle | None:
    """Run programs on the idle system, call by call, and return how fast it is; its very first calls are slow."""
    samples = [await _samples(target, f"warm-up-{number}", each, texts) for number, each in enumerate(programs)]
    return fit([sample for of_program in samples[1:] or samples for sample in of_program])


async def _samples(target: Target, name: str, arrival: Arrival, texts: Texts) -> list[Sample]:
    samples: list[Sample] = []
    had: dict[int, list[int]] = {}
    async with target.program(name, agent_of(arrival)) as link:
        for call in arrival.program.calls[:WARM_UP_CALLS]:
            before = had[call.source] if call.source is not None else []
            prompt = texts.prompt(name, arrival, call, before)
            answered = await link.call(prompt, max_tokens=call.output_tokens, thread="t1", parents=[])
            had[call.id] = [*prompt, *answered.tokens]
            samples.append(_sample(call, answered))
    return samples


def _sample(call: TraceCall, answered: Answered) -> Sample:
    """Return what a call shows; its prompt in recorded tokens, which are words where prompts are texts."""
    words_a_token = call.prompt_tokens / (answered.prompt_tokens or call.prompt_tokens)
    cached = answered.cached_tokens
    return Sample(
        prompt_tokens=call.prompt_tokens,
        known_tokens=known_tokens(call),
        cached_tokens=None if cached is None else cached * words_a_token,
        output_tokens=answered.output_tokens,
        first_token_s=answered.first_token_s,
        total_s=answered.total_s,
    )
