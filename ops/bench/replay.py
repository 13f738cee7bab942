"""Replays programs of a trace on one real engine core in this process.

Every program is new text but for its system prompt, and each prompt really begins with what the engine answered before.
"""

import heapq
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from autellix.engine.executor import ProgramOver
from autellix.engine.policy.accounting import Attained, fold
from autellix.engine.policy.learning import Learnt
from autellix.engine.vllm_adapter.notices import NoticeSender
from autellix.engine.vllm_adapter.reports import Ended, ReportReceiver
from autellix.schemas.traces.records import TraceCall, TraceProgram

VOCABULARY = range(300, 900)
"""Tokens of the tiny model that are not special."""
LOOK_S = 2.0
"""Time between two looks at how much the live programs' contexts would take."""


@dataclass(frozen=True)
class Arriving:
    """A program that is going to be replayed."""

    trace: str
    program: TraceProgram


@dataclass
class Call:
    """One call under way."""

    call: TraceCall
    prompt: list[int]
    submitted_s: float
    path_at_arrival_ms: float
    answer: list[int] = field(default_factory=list)
    waited_s: float | None = None
    """Until its first token."""
    cached: int = 0


@dataclass(eq=False)
class Program:
    """One program under way."""

    number: int
    arriving: Arriving
    began_s: float
    attained: Attained = field(default_factory=Attained)
    calls: dict[int, Call] = field(default_factory=dict)
    """Under way, by the call's id."""
    ended: dict[int, Call] = field(default_factory=dict)
    away_s: dict[int, float] = field(default_factory=dict)
    """Interrupts on the path to the end of each ended call."""
    last: Call | None = None
    """The one that ended last."""
    threads: dict[int, str] = field(default_factory=dict)
    """Of the calls under way."""

    @property
    def name(self) -> str:
        """Return its program id."""
        return f"program-{self.number}"

    def contexts(self) -> list[list[int]]:
        """Return the tokens of its live calls, and of the call that ended last."""
        calls = [*self.calls.values(), *([self.last] if self.last else [])]
        return [call.prompt + call.answer for call in calls]

    def thread_of(self, call_id: int) -> str:
        """Give a call that starts the first thread without one, as the session manager does, and return it."""
        busy = set(self.threads.values())
        names = (f"t{number}" for number in itertools.count(1))
        self.threads[call_id] = next(name for name in names if name not in busy)
        return self.threads[call_id]


class Row(NamedTuple):
    """How a program fared; seconds and tokens."""

    response_s: float
    """Without interrupts."""
    waited_s: float
    """For first tokens, all its calls together."""
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class Replay:
    """One run: so many programs at a time, until all have come and gone.

    Args:
        core: vLLM's engine core.
        arriving: The programs, in order.
        live: How many are there at a time.
        block_tokens: Tokens of a block of the KV cache.
        interrupt_cap_s: The longest interrupt.
        seed: Of their text.
        reports: What our scheduler reports; None: it is vLLM's own.
        notices: The way to tell it of programs.
    """

    def __init__(
        self,
        core: Any,
        arriving: Sequence[Arriving],
        *,
        live: int,
        block_tokens: int,
        interrupt_cap_s: float,
        seed: int,
        reports: ReportReceiver | None,
        notices: NoticeSender | None,
    ) -> None:
        self.rows: list[Row] = []
        self.took_s = 0.0
        self._working_sets: list[int] = []
        self._next_look_s = 0.0
        self._core = core
        self._coming = iter(enumerate(arriving))
        self._live = live
        self._block_tokens = block_tokens
        self._interrupt_cap_s = interrupt_cap_s
        self._chance = random.Random(f"text {seed}")  # noqa: S311 - prompts, no secrets
        self._reports = reports
        self._notices = notices
        self._learnt = Learnt()
        self._system: dict[tuple[str, str, int], list[int]] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._orders = itertools.count()
        self._of_call: dict[str, tuple[Program, Call]] = {}
        self._programs: dict[int, Program] = {}

    def run(self, each: Callable[[], None]) -> None:
        """Run to the end, telling of each program that is over."""
        self._each = each
        began_s = time.monotonic()
        for _ in range(self._live):
            self._arrive()
        while self._programs:
            self._do_what_is_due()
            self._look()
            if self._core.scheduler.has_requests():
                self._step()
            elif self._due:
                time.sleep(max(0.0, self._due[0][0] - time.monotonic()))
        self.took_s = time.monotonic() - began_s

    @property
    def working_set_blocks(self) -> float:
        """Return the KV blocks of the contexts of all live programs, what they share once: the mean of the middle."""
        seen = self._working_sets
        return fmean(seen[len(seen) // 5 : len(seen) - len(seen) // 5] or seen)

    def _look(self) -> None:
        if time.monotonic() >= self._next_look_s:
            contexts = [tokens for program in self._programs.values() for tokens in program.contexts()]
            self._working_sets.append(len(set(itertools.chain.from_iterable(map(self._blocks, contexts)))))
            self._next_look_s = time.monotonic() + LOOK_S

    def _blocks(self, tokens: list[int]) -> Iterator[int]:
        """Yield a key for each full block, of its tokens and all before them."""
        size, key = self._block_tokens, 0
        for end in range(size, len(tokens) + 1, size):
            key = hash((key, *tokens[end - size : end]))
            yield key

    def _do_what_is_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._orders), action))

    def _arrive(self) -> None:
        coming = next(self._coming, None)
        if coming:
            program = self._programs[coming[0]] = Program(*coming, began_s=time.monotonic())
            for call in program.arriving.program.calls:
                if not call.parents:
                    self._submit_later(program, call, 0.0)

    def _submit_later(self, program: Program, call: TraceCall, away_s: float) -> None:
        interrupt_s = min(call.interrupt_s or 0.0, self._interrupt_cap_s)
        program.away_s[call.id] = away_s + interrupt_s
        self._later(interrupt_s, lambda: self._submit(program, call))

    def _submit(self, program: Program, call: TraceCall) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        name = f"{program.number}-{call.id}"
        live = Call(call, self._prompt(program, call), time.monotonic(), program.attained.critical_path_ms)
        program.calls[call.id] = live
        self._of_call[name] = (program, live)
        facts = {
            "autellix_call_id": name,
            "autellix_program_id": program.name,
            "autellix_thread_id": program.thread_of(call.id),
            "autellix_service_ms": program.attained.service_ms,
            "autellix_critical_path_ms": program.attained.critical_path_ms,
            "autellix_waiting_ms": program.attained.waiting_ms,
            "autellix_kind": program.arriving.trace,
        }
        params = SamplingParams(max_tokens=call.output_tokens, ignore_eos=True, temperature=0.0, extra_args=facts)
        hasher = self._core.request_block_hasher
        self._core.add_request(Request(name, live.prompt, params, None, block_hasher=hasher))

    def _prompt(self, program: Program, call: TraceCall) -> list[int]:
        """Return a prompt that begins as its source did, or with the system prompt, and ends in new text."""
        known = self._system_prompt(program.arriving, call.system_tokens)
        source = program.ended.get(call.source) if call.source is not None else None
        if source and call.shared_prefix_tokens:
            shared = (source.prompt + source.answer)[: call.shared_prefix_tokens]
            known = max(known, shared, key=len)
        return [*known, *self._chance.choices(VOCABULARY, k=call.prompt_tokens - len(known))]

    def _system_prompt(self, arriving: Arriving, tokens: int) -> list[int]:
        known_as = (arriving.trace, arriving.program.prefix_group, tokens)
        if known_as not in self._system:
            self._system[known_as] = self._chance.choices(VOCABULARY, k=tokens)
        return self._system[known_as]

    def _step(self) -> None:
        outputs, _ = self._core.step_fn()
        now_s = time.monotonic()
        accounts = self._accounts()
        for output in (each for of_client in (outputs or {}).values() for each in of_client.outputs):
            program, live = self._of_call[output.request_id]
            if live.waited_s is None:
                live.waited_s = now_s - live.submitted_s
            if output.prefill_stats:
                live.cached = output.prefill_stats.num_cached_tokens
            live.answer += output.new_token_ids
            if output.finish_reason is not None:
                self._ended(program, live, accounts.get(output.request_id), now_s)

    def _accounts(self) -> dict[str, Ended]:
        reports = self._reports.receive() if self._reports else []
        return {report.call_id: report for report in reports if isinstance(report, Ended)}

    def _ended(self, program: Program, live: Call, account: Ended | None, now_s: float) -> None:
        call = live.call
        del self._of_call[f"{program.number}-{call.id}"]
        program.last = program.ended[call.id] = program.calls.pop(call.id)
        del program.threads[call.id]
        if account:
            program.attained = fold(
                program.attained,
                service_ms=account.service_ms,
                wait_ms=account.wait_ms,
                critical_path_at_arrival_ms=live.path_at_arrival_ms,
            )
        for child in self._free_children(program, call):
            self._submit_later(program, child, program.away_s[call.id])
        if len(program.ended) == len(program.arriving.program.calls):
            self._over(program, now_s - program.began_s - program.away_s[call.id])

    @staticmethod
    def _free_children(program: Program, call: TraceCall) -> Iterator[TraceCall]:
        """Yield the calls that waited for this one last."""
        for child in program.arriving.program.calls:
            if call.id in child.parents and all(parent in program.ended for parent in child.parents):
                yield child

    def _over(self, program: Program, response_s: float) -> None:
        calls = program.ended.values()
        self.rows.append(
            Row(
                response_s=response_s,
                waited_s=sum(call.waited_s or 0.0 for call in calls),
                prompt_tokens=sum(len(call.prompt) for call in calls),
                cached_tokens=sum(call.cached for call in calls),
                output_tokens=sum(len(call.answer) for call in calls),
            )
        )
        del self._programs[program.number]
        if self._notices:
            self._notices.tell(ProgramOver(program_id=program.name))  # type: ignore[arg-type]
            if self._learnt.program_ended(program.arriving.trace, program.attained.service_ms):
                self._notices.tell(self._learnt.priorities())
        self._each()
        self._arrive()
