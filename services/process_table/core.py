"""The decisions of the process table.

Rules:
* It is the only writer of program state, and it learns from events alone: any order of them, and any event twice, gives
  the same table.
* A call is stamped with its program's facts on arrival and folded into the program when it ends, whichever way it ends.
* A call that arrives twice is passed on twice, in case it was lost behind here, and counts once.
* A program that nobody announced (its event comes later, or was lost) gets a record with the first that is heard of it.
* Ended programs stay visible up to a bound, the oldest go first; what is heard later of one that went changes nothing.
* A program that starts after its end is a new one: a named session may be used again, and is not charged for calls of
  its life before that end late.
* A program that is over teaches what its kind needs when the last of its calls has ended, once.
"""

from collections import OrderedDict
from collections.abc import Iterable
from math import inf
from typing import Any

import msgspec

from autellix.engine.policy.accounting import Attained, fold
from autellix.schemas import subjects, tenants
from autellix.schemas.base import Message
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import (
    AdmittedCall,
    CallAdmitted,
    CallCancelled,
    CallEnd,
    CallFailed,
    CallFinished,
    CallRouted,
    Event,
    GetProgram,
    ListPrograms,
    ProgramEnded,
    ProgramExpired,
    ProgramFacts,
    ProgramRecord,
    ProgramStarted,
    SubmittedCall,
    ThreadRecord,
)
from autellix.services.config import ProcessTableSettings
from autellix.services.core import Out, Reply, announce, answer, asking
from autellix.services.process_table.answers import found, listed
from autellix.services.process_table.lessons import Lessons
from autellix.services.process_table.prompts import PromptEstimator
from autellix.services.process_table.rows import SNAPSHOTS, Row, TableSnapshot

ENDED_REMEMBERED = 20_000
"""Ended calls, and ended programs that are no longer visible."""
SILENT_MAX_MS = 48 * 3_600_000.0
"""Longer than any program may be idle."""
THREADS_KEPT = 1024
"""Threads of one program; those that were quiet for longest go first."""


class ProcessTable:
    """One row a program."""

    def __init__(self, settings: ProcessTableSettings) -> None:
        self._settings = settings
        self._rows: dict[ProgramId, Row] = {}
        self._ended: OrderedDict[ProgramId, None] = OrderedDict()
        self._gone: OrderedDict[ProgramId, float] = OrderedDict()
        """When the programs ended that are no longer visible."""
        self._ended_calls: OrderedDict[CallId, None] = OrderedDict()
        self._prompts = PromptEstimator()
        self._lessons = Lessons()

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:
        """Take in a call on its way, an event, or a question."""
        match message:
            case SubmittedCall():
                return self._admit(message, now_ms)
            case CallFinished() | CallFailed() | CallCancelled():
                self._call_ended(message)
            case CallRouted():
                self._call_routed(message)
            case ProgramStarted():
                self._program_started(message)
            case ProgramEnded():
                self._program_over(message.program_id, "ended", message.at_ms)
            case ProgramExpired():
                self._program_over(message.program_id, "expired", message.at_ms)
            case ListPrograms():
                return answer(reply, listed(self._rows, self._ended, message, asking(reply), now_ms))
            case GetProgram():
                return answer(reply, found(self._rows, message, asking(reply), now_ms))
        return ()

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Let time pass: tell the engines what was learnt."""
        return self._lessons.tick(now_ms)

    def snapshot(self) -> bytes:
        """Return all that it knows but for the lengths of prompts."""
        known = TableSnapshot(
            rows=list(self._rows.values()),
            ended=list(self._ended),
            gone=dict(self._gone),
            ended_calls=list(self._ended_calls),
            learnt=self._lessons.learnt,
        )
        return msgspec.msgpack.encode(known)

    def restore(self, snapshot: bytes, now_ms: float) -> None:  # noqa: ARG002 what others need
        """Know what a snapshot says."""
        known = SNAPSHOTS.decode(snapshot)
        self._rows = {row.record.program_id: row for row in known.rows}
        self._ended = OrderedDict.fromkeys(known.ended)
        self._gone = OrderedDict(known.gone)
        self._ended_calls = OrderedDict.fromkeys(known.ended_calls)
        self._lessons.learnt = known.learnt

    def recover(self, event: Event, now_ms: float) -> None:
        """Take in an event that happened while it was not there, or that it knows already."""
        if not isinstance(event, CallAdmitted):
            self.handle(event, now_ms)
            return
        row = self._row(event.program_id, event.at_ms)
        if event.call_id not in row.live and event.call_id not in self._ended_calls:
            self._begin(row, event.call_id, event.thread_id, event.at_ms, event.at_ms)

    def recovered(self, now_ms: float) -> None:
        """Hear that no more such events come, for now: who was silent for days is over, though nobody said so."""
        for program_id, row in list(self._rows.items()):
            record = row.record
            last_ms = max(record.started_at_ms, record.last_arrival_at_ms or 0.0, record.last_completion_at_ms or 0.0)
            if record.state == "running" and now_ms - last_ms > SILENT_MAX_MS:
                self._program_over(program_id, "expired", last_ms)

    def _row(self, program_id: ProgramId, at_ms: float) -> Row:
        """Return a program's row; a new one, if it is new, and one that is not kept, if it is no longer visible."""
        row = self._rows.get(program_id)
        if row is None:
            gone = program_id in self._gone
            state = "ended" if gone else "running"
            tenant = tenants.tenant_of(program_id)
            record = ProgramRecord(program_id=program_id, tenant=tenant, started_at_ms=at_ms, state=state)
            row = Row(record=record, has_taught=gone)
            if not gone:
                self._rows[program_id] = row
        if row.announced_at_ms is None:
            row.record.started_at_ms = min(row.record.started_at_ms, at_ms)
        return row

    def _program_started(self, event: ProgramStarted) -> None:
        row = self._rows.get(event.program_id)
        if row and row.announced_at_ms is not None and event.at_ms <= row.announced_at_ms:
            return  # of a life before this one, or known; its end may be stamped earlier, if the clock was set back
        ended_at_ms = row.record.ended_at_ms if row else self._gone.get(event.program_id)
        if ended_at_ms is not None and event.at_ms > ended_at_ms:
            self._anew(event.program_id, event.at_ms)
        row = self._row(event.program_id, event.at_ms)
        row.announced_at_ms = row.record.started_at_ms = event.at_ms
        row.record.name, row.record.source = event.name, event.source

    def _anew(self, program_id: ProgramId, at_ms: float) -> None:
        """Forget a life that is over, since another one began."""
        for memory in (self._rows, self._ended, self._gone):
            memory.pop(program_id, None)
        self._row(program_id, at_ms).began_anew = True

    def _admit(self, submitted: SubmittedCall, now_ms: float) -> list[Out]:
        call = submitted.call
        known = self._rows.get(call.program_id)
        if known and known.is_named and call.arrival_at_ms > (known.record.ended_at_ms or inf):
            self._anew(call.program_id, now_ms)  # that it did will be heard
        row = self._row(call.program_id, now_ms)
        if call.call_id in self._ended_calls:
            return []
        is_new = call.call_id not in row.live
        record = row.settle(now_ms)
        record.kind = submitted.kind
        facts = ProgramFacts(
            service_ms=record.service_ms,
            critical_path_ms=record.critical_path_ms,
            waiting_ms=record.waiting_ms,
            home_engine=record.home_engine,
            prompt_tokens_estimate=self._prompts.arrived(call),
            kind=record.kind,
        )
        passed_on = Out(subjects.CALL_ADMITTED, AdmittedCall(call=call, program=facts))
        if not is_new:  # it was lost behind here; who has it knows
            return [passed_on]
        self._begin(row, call.call_id, call.thread_id, call.arrival_at_ms, now_ms)
        admitted = CallAdmitted(
            call_id=call.call_id,
            program_id=call.program_id,
            thread_id=call.thread_id,
            at_ms=now_ms,
            service_ms=facts.service_ms,
            critical_path_ms=facts.critical_path_ms,
        )
        return [passed_on, announce(admitted)]

    def _begin(self, row: Row, call_id: CallId, thread_id: ThreadId, arrival_at_ms: float, now_ms: float) -> None:
        record = row.record
        if not row.live:
            row.busy_since_ms = now_ms
        row.live[call_id] = record.critical_path_ms
        record.live_calls = len(row.live)
        self._arrived(record, thread_id, arrival_at_ms).live_call = call_id

    def _arrived(self, record: ProgramRecord, thread_id: ThreadId, at_ms: float) -> ThreadRecord:
        """Note that a call arrived, and return its thread, now the one that was active last."""
        record.last_arrival_at_ms = max(record.last_arrival_at_ms or at_ms, at_ms)
        thread = record.threads.pop(thread_id, None) or ThreadRecord(thread_id=thread_id)
        thread.arrival_at_ms = max(thread.arrival_at_ms, at_ms)
        record.threads[thread_id] = thread
        if len(record.threads) > THREADS_KEPT:
            del record.threads[next(iter(record.threads))]
        return thread

    def _call_routed(self, event: CallRouted) -> None:
        row = self._row(event.program_id, event.at_ms)
        if event.engine_id not in row.record.engines:
            row.record.engines.append(event.engine_id)
        if event.becomes_home and event.at_ms >= row.home_since_ms:
            row.record.home_engine, row.home_since_ms = event.engine_id, event.at_ms

    def _call_ended(self, event: CallEnd) -> None:
        """Fold one ended call into its program, once."""
        if event.call_id in self._ended_calls:
            return
        _remember(self._ended_calls, event.call_id, None)
        row = self._row(event.program_id, event.arrival_at_ms)
        if row.began_anew and event.call_id not in row.live and event.arrival_at_ms < (row.announced_at_ms or 0.0):
            return  # of a life before this one
        record = row.settle(event.at_ms)
        row.live.pop(event.call_id, None)
        attained = fold(
            Attained(record.service_ms, record.critical_path_ms, record.waiting_ms),
            service_ms=event.service_ms,
            wait_ms=event.wait_ms,
            critical_path_at_arrival_ms=event.critical_path_at_arrival_ms,
        )
        record.service_ms, record.critical_path_ms, record.waiting_ms = attained
        record.live_calls = len(row.live)
        record.calls += 1
        record.prompt_tokens += event.prompt_tokens
        record.cached_tokens += event.cached_tokens
        record.output_tokens += event.output_tokens
        record.preemptions += event.preemptions
        record.queue = event.queues[-1] if event.queues else record.queue
        record.last_completion_at_ms = max(record.last_completion_at_ms or event.at_ms, event.at_ms)
        self._fold_thread(self._arrived(record, event.thread_id, event.arrival_at_ms), event)
        self._prompts.ended(event)
        if record.state != "running":
            self._prompts.forget(event.program_id)
            self._teach(row)

    def _fold_thread(self, thread: ThreadRecord, event: CallEnd) -> None:
        thread.calls += 1
        thread.service_ms += event.service_ms
        thread.wait_ms += event.wait_ms
        if thread.live_call == event.call_id:
            thread.live_call = None

    def _program_over(self, program_id: ProgramId, state: str, at_ms: float) -> None:
        row = self._row(program_id, at_ms)
        # only named ones come again; clocks may be set back
        if row.record.state != "running" or (row.is_named and at_ms < (row.announced_at_ms or 0.0)):
            return
        row.record.state, row.record.ended_at_ms = state, at_ms
        self._prompts.forget(program_id)
        self._teach(row)
        self._ended[program_id] = None
        while len(self._ended) > self._settings.ended_kept:
            oldest, _ = self._ended.popitem(last=False)
            _remember(self._gone, oldest, self._rows.pop(oldest).record.ended_at_ms or 0.0)

    def _teach(self, row: Row) -> None:
        """Learn from a program that is over, if none of its calls is left."""
        if not (row.live or row.has_taught):
            row.has_taught = True
            self._lessons.program_ended(row.record.kind, row.record.service_ms)


def _remember(memory: OrderedDict[Any, Any], name: str, value: Any) -> None:
    memory[name] = value
    if len(memory) > ENDED_REMEMBERED:
        memory.popitem(last=False)
