"""One program's call graph: what waits for what, on which thread, and how its time is accounted for."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from autellix.client.bench.idle import Idle
from autellix.client.bench.measures import ProgramRow
from autellix.client.bench.program import Replayed
from autellix.client.bench.targets import Answered, TargetError
from autellix.client.bench.texts import Texts
from tests.client.bench.conftest import FORK, arrival_of, call

IDLE = Idle(first_token_s=0.0, computed_token_s=0.001, output_token_s=0.0)


@dataclass
class Script:
    """A link on which each call takes a turn of the event loop, and says that its first token took what it is told."""

    first_token_s: dict[int, float] = field(default_factory=dict)
    """By the number of tokens in the prompt."""
    cached_tokens: int | None = 0
    fails: int = 0
    """The length of the prompt that is refused."""
    hangs: int = 0
    """The length of the prompt that is never answered."""
    asked: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    async def call(self, prompt: Sequence[int], *, max_tokens: int, thread: str, parents: Sequence[str]) -> Answered:
        """Answer, or refuse."""
        size = len(prompt)
        self.asked.append((size, thread, tuple(parents)))
        if size == self.fails:
            raise TargetError("refused")
        if size == self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        self.ended.append(size)
        first_s = self.first_token_s.get(size, 0.0)
        return Answered([7] * max_tokens, first_s, first_s, size, self.cached_tokens, max_tokens, f"call-{size}")


async def replayed(script: Script, *, cap_s: float = 0.0) -> ProgramRow:
    """Run the program that branches and joins; its calls are told apart by the lengths of their prompts."""
    program = Replayed("a", arrival_of(*FORK), Texts(1), interrupt_cap_s=cap_s, idle=IDLE)
    began_s = time.perf_counter()
    await program.run(script)
    return program.row(began_s, 0.0)


async def test_calls_wait_for_their_parents() -> None:
    """Branches are asked for together on threads of their own, and the join when both have ended."""
    script = Script()
    row = await replayed(script)

    assert [(60, "t1", ()), (100, "t1", ("call-60",)), (90, "t2", ("call-60",))] == script.asked[:3]
    assert [(200, "t1", ("call-100", "call-90"))] == script.asked[3:]
    assert (4, "", 32, 450) == (row.calls, row.error, row.output_tokens, row.prompt_tokens)


async def test_interrupts_of_the_path_are_no_response() -> None:
    """The branch that was interrupted ends last: its interrupt is part of the makespan, and of nothing else."""
    row = await replayed(Script(), cap_s=30.0)

    assert row.makespan_s >= 0.01
    assert row.makespan_s - 0.01 == pytest.approx(row.response_s)


async def test_waiting_is_counted_along_the_path() -> None:
    """What counts as queued is what first tokens on the path took beyond the idle system; waited are all calls."""
    script = Script({60: 0.5, 90: 0.7, 100: 0.01, 200: 2.0})
    row = await replayed(script, cap_s=30.0)

    assert [90, 100] == script.ended[1:3]
    assert 0.5 - 0.06 + 0.0 + 2.0 - 0.2 == pytest.approx(row.queued_s)
    assert 0.5 + 0.7 + 0.01 + 2.0 == pytest.approx(row.waited_s)


async def test_failed_call_ends_its_program() -> None:
    """The call beside one that fails is cancelled, the join never starts, and the row says why."""
    script = Script(fails=90, hangs=100)
    row = await replayed(script)

    assert [60] == script.ended
    assert (3, 1, "refused") == (len(script.asked), row.calls, row.error)


async def test_cache_that_is_not_told_of() -> None:
    """Where the server does not tell of its cache the row does not either."""
    assert (await replayed(Script(cached_tokens=None))).cached_tokens is None
    assert 20 == (await replayed(Script(cached_tokens=5))).cached_tokens


async def test_short_answers_are_counted() -> None:
    """An answer of fewer tokens than recorded is no error, but is counted."""
    program = Replayed("a", arrival_of(call(0, output_tokens=3)), Texts(1), interrupt_cap_s=0.0, idle=None)

    class Short(Script):
        async def call(
            self, prompt: Sequence[int], *, max_tokens: int, thread: str, parents: Sequence[str]
        ) -> Answered:
            return await super().call(prompt, max_tokens=max_tokens - 1, thread=thread, parents=parents)

    await program.run(Short())
    row = program.row(time.perf_counter(), 0.0)

    assert (1, 2, "") == (row.short_answers, row.output_tokens, row.error)
    assert (None, None) == (row.queued_s, row.idle_s)
