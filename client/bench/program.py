"""One recorded program under way: its call graph as an agent would run it.

Rules:
* A call starts `interrupt_s` after the last of its parents ended; one without parents, that long after the program.
* Calls of different branches run at the same time, each on a thread of its own: the first without a running call.
* A call that fails ends its program: calls that run beside it are cancelled, and none is started any more.
"""

import asyncio
import itertools
import time
from collections import defaultdict
from typing import NamedTuple

from autellix.client.bench.idle import Idle, interrupt_s
from autellix.client.bench.measures import ProgramRow
from autellix.client.bench.targets import Answered, Link
from autellix.client.bench.texts import Texts
from autellix.client.errors import AutellixError
from autellix.schemas.traces.records import TraceCall
from autellix.schemas.traces.workloads import Arrival


class Path(NamedTuple):
    """The chain of calls that determined when something happened; seconds."""

    interrupts_s: float = 0.0
    queued_s: float = 0.0
    """For first tokens, beyond what the idle system needs."""


class Ended(NamedTuple):
    """A call that was answered."""

    call: TraceCall
    prompt: list[int]
    answered: Answered


class Replayed:
    """One program.

    Args:
        name: Unique in the run.
        arrival: What to replay.
        texts: Where its prompts come from.
        interrupt_cap_s: The longest interrupt.
        idle: The speed of the idle system, if it is known.
    """

    def __init__(self, name: str, arrival: Arrival, texts: Texts, *, interrupt_cap_s: float, idle: Idle | None) -> None:
        self.name = name
        self.error = ""
        self._arrival = arrival
        self._texts = texts
        self._interrupt_cap_s = interrupt_cap_s
        self._idle = idle
        self._ended: dict[int, Ended] = {}
        self._threads: dict[int, str] = {}
        """Of the calls under way."""
        self._last = Path()
        """That of the call that ended last."""
        self._children: dict[int, list[TraceCall]] = defaultdict(list)
        for call in arrival.program.calls:
            for parent in dict.fromkeys(call.parents):
                self._children[parent].append(call)

    async def run(self, link: Link) -> None:
        """Make all calls; return when they ended or one failed."""
        try:
            async with asyncio.TaskGroup() as calls:
                for call in self._arrival.program.calls:
                    if not call.parents:
                        calls.create_task(self._make(call, Path(), link, calls))
        except* AutellixError as failed:
            self.error = str(_first(failed))

    async def _make(self, call: TraceCall, path: Path, link: Link, calls: asyncio.TaskGroup) -> None:
        """Make a call, and then start those that waited for it last."""
        away_s = interrupt_s(call, self._interrupt_cap_s)
        await asyncio.sleep(away_s)
        prompt = self._prompt(call)
        parents = [self._ended[parent].answered.call_id for parent in call.parents]
        answered = await link.call(
            prompt, max_tokens=call.output_tokens, thread=self._take_thread(call.id), parents=parents
        )
        del self._threads[call.id]
        self._ended[call.id] = Ended(call, prompt, answered)
        queued_s = max(0.0, answered.first_token_s - self._idle.wait_s(call)) if self._idle else 0.0
        self._last = Path(path.interrupts_s + away_s, path.queued_s + queued_s)
        for child in self._children[call.id]:
            if all(parent in self._ended for parent in child.parents):
                calls.create_task(self._make(child, self._last, link, calls))

    def _prompt(self, call: TraceCall) -> list[int]:
        source = self._ended.get(call.source) if call.source is not None else None
        before = [*source.prompt, *source.answered.tokens] if source else []
        return self._texts.prompt(self.name, self._arrival, call, before)

    def _take_thread(self, call_id: int) -> str:
        busy = set(self._threads.values())
        names = (f"t{number}" for number in itertools.count(1))
        self._threads[call_id] = next(name for name in names if name not in busy)
        return self._threads[call_id]

    def row(self, began_s: float, arrived_s: float) -> ProgramRow:
        """Return how it fared, now that it is over.

        Args:
            began_s: When the run began, on the clock of `time.perf_counter`.
            arrived_s: When the program arrived, after that.
        """
        makespan_s = time.perf_counter() - began_s - arrived_s
        program, idle = self._arrival.program, self._idle
        answers = [(ended.call, ended.answered) for ended in self._ended.values()]
        cached = [answered.cached_tokens for _, answered in answers if answered.cached_tokens is not None]
        return ProgramRow(
            name=program.program_id,
            trace=self._arrival.trace,
            calls=len(answers),
            arrived_s=arrived_s,
            makespan_s=makespan_s,
            response_s=makespan_s - self._last.interrupts_s,
            waited_s=sum(answered.first_token_s for _, answered in answers),
            queued_s=self._last.queued_s if idle else None,
            idle_s=idle.completion_s(program, self._interrupt_cap_s) if idle else None,
            prompt_tokens=sum(answered.prompt_tokens for _, answered in answers),
            cached_tokens=sum(cached) if len(cached) == len(answers) else None,
            output_tokens=sum(answered.output_tokens for _, answered in answers),
            short_answers=sum(answered.output_tokens < call.output_tokens for call, answered in answers),
            error=self.error,
        )


def _first(failed: BaseExceptionGroup[AutellixError]) -> BaseException:
    """Return the failure that came first."""
    first = failed.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
