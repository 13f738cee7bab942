"""Between the bus and one engine: a task a call, a heartbeat, and a gentle end.

What is decided is decided in `core.py`; here is the waiting. Everything that is said goes through one outbox, so that
it is said in the order in which it happened.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any, Self

import structlog

from autellix.engine.executor import EngineGoneError, Executor, ProgramOver, Started, Turn
from autellix.schemas import subjects
from autellix.schemas.base import ErrorBody
from autellix.schemas.codec import PROGRAM_ENDS, Decoder, MalformedMessageError
from autellix.schemas.ids import CallId, EngineId, Incarnation
from autellix.schemas.messages import (
    CallHeld,
    CancelCalls,
    ControlEngine,
    EngineLoad,
    EngineSeries,
    EngineUp,
    Failed,
    ForgetCalls,
    GetSeries,
    Priorities,
    ProgramEnd,
    ReleaseHeld,
    RoutedCall,
)
from autellix.services import tracing
from autellix.services.bus import Bus, Delivery, Handler, Subscription
from autellix.services.config import EngineWorkerSettings, LoadBalancerSettings
from autellix.services.core import Out, Reply, announce, answer
from autellix.services.engine_worker.alive import Alive
from autellix.services.engine_worker.core import FORGOTTEN, RELEASED, End, Verdict, WorkerCore
from autellix.services.engine_worker.stream import CallStream, no_account
from autellix.services.publishing import publish
from autellix.services.runner import reply_to, wall_ms

log = structlog.get_logger()

LAST_WORDS_S = 3.0
"""How long calls have to end once they are stopped or their engine died: more than an account may take."""
CONNECTED_S = 0.05
IDLE_S = 0.1
"""How soon a heartbeat says that the engine fell idle: not after each of many short calls."""


class EngineWorker:
    """One engine on the bus, `async with`: entering takes calls, leaving drains."""

    def __init__(
        self,
        bus: Bus,
        executor: Executor,
        settings: EngineWorkerSettings,
        *,
        on_gone: Callable[[], None],
        silence_s: float = LoadBalancerSettings().engine_silence_s,
    ) -> None:
        """Prepare.

        Args:
            bus: Where calls come from.
            executor: The engine.
            settings: Of this worker.
            on_gone: Called when the engine died.
            silence_s: After so much silence others take this worker for dead.
        """
        self._bus = bus
        self._executor = executor
        self._settings = settings
        self._on_gone = on_gone
        self._core = WorkerCore(EngineId(settings.engine_id), Incarnation(secrets.token_hex(8)))
        self._streams: dict[CallId, CallStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: asyncio.Queue[Out] = asyncio.Queue()
        self._idle = asyncio.Event()
        """The last live call ended: the heartbeat that says so does not wait for its time."""
        self._subscriptions: list[Subscription] = []
        self._background: list[asyncio.Task[None]] = []
        self._parting = "stopped"
        self._alive = Alive(silence_s, bus.flush)
        executor.on_turn = self._on_turn

    async def __aenter__(self) -> Self:
        """Subscribe, then say that the engine is up."""
        engine_id = self._core.engine_id
        await self._listen(subjects.engine_calls(engine_id), Decoder(RoutedCall), self._on_routed)
        await self._listen(subjects.CALL_CANCEL, Decoder(CancelCalls), self._on_cancel)
        await self._listen(subjects.engine_release(engine_id), Decoder(ReleaseHeld), self._on_release)
        await self._listen(subjects.engine_forget(engine_id), Decoder(ForgetCalls), self._on_forget)
        await self._listen(subjects.engine_control(engine_id), Decoder(ControlEngine), self._on_control)
        await self._listen(subjects.engine_series(engine_id), Decoder(GetSeries), self._on_series)
        await self._listen(subjects.PRIORITIES, Decoder(Priorities), self._on_priorities)
        for subject in subjects.PROGRAM_ENDS:
            await self._listen(subject, PROGRAM_ENDS, self._on_program_over)
        await self._bus.flush()
        self._background = [asyncio.create_task(self._publish_forever()), asyncio.create_task(self._beat_forever())]
        self._say(announce(self._core.up(self._executor.info, now_ms=wall_ms())))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Refuse what is new, let what runs end within `drain_s`, cancel the rest, and leave."""
        self._core.draining = True
        with contextlib.suppress(EngineGoneError):
            self._say(announce(self._load()))
        await self._wait_for_calls(self._settings.drain_s)
        for stream in self._streams.values():
            stream.stop(End(status=503, error=_stopping(), retry_safe=False))
        await self._wait_for_calls(LAST_WORDS_S)
        for subscription in self._subscriptions:  # what arrives until then is still refused
            await subscription.unsubscribe()
        self._say(announce(self._core.down(self._parting, now_ms=wall_ms())))
        with contextlib.suppress(TimeoutError):  # the bus may be away
            await asyncio.wait_for(self._outbox.join(), LAST_WORDS_S)
        self._alive.close()
        for task in self._background:
            task.cancel()

    async def _wait_for_calls(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def _listen(self, subject: str, decoder: Decoder[Any], on_message: Callable[..., None]) -> None:
        self._subscriptions.append(await self._bus.subscribe(subject, self._handler(decoder, on_message)))

    def _handler(self, decoder: Decoder[Any], on_message: Callable[..., None]) -> Handler:
        async def handle(delivery: Delivery) -> None:
            reply = reply_to(delivery)
            try:
                on_message(decoder.decode(delivery.data), reply)
            except MalformedMessageError as error:
                log.warning("malformed message", subject=delivery.subject, error=str(error))
                self._say(*answer(reply, _refusal(str(error))))
            except EngineGoneError as error:
                self._say(*answer(reply, Failed(status=503, error=ErrorBody(message=str(error), type="server_error"))))

        return handle

    def _say(self, *outs: Out) -> None:
        for out in outs:
            self._outbox.put_nowait(out)

    async def _publish_forever(self) -> None:
        while True:
            out = await self._outbox.get()
            try:
                while not self._bus.connected:  # noqa: ASYNC110 - nobody tells; what is said now is said too late
                    await asyncio.sleep(CONNECTED_S)
                if self._alive.has_lapsed:
                    self._begin_anew()
                else:
                    await publish(self._bus, out)
                if isinstance(out.message, EngineLoad | EngineUp):
                    self._alive.said()
            finally:
                self._outbox.task_done()

    def _begin_anew(self) -> None:
        """Say nothing of what there was to say, and go on as a new life of this engine."""
        log.warning("taken for dead", calls=len(self._core.live))
        while not self._outbox.empty():
            self._outbox.get_nowait()
            self._outbox.task_done()
        for stream in list(self._streams.values()):
            stream.stop(FORGOTTEN)
        self._core.incarnation = Incarnation(secrets.token_hex(8))
        self._alive.renew()
        self._say(announce(self._core.up(self._executor.info, now_ms=wall_ms())))

    # --- calls

    def _on_routed(self, routed: RoutedCall, _reply: Reply | None) -> None:
        match self._core.arrive(routed):
            case Verdict.RUN:
                stream = self._streams[routed.call.call_id] = CallStream(routed, self._executor, self._say)
                task = asyncio.create_task(self._run(routed, stream))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Verdict.CANCELLED:
                self._end(routed, End(cancelled="before it began"))
            case Verdict.DRAINING:
                self._end(routed, End(status=503, error=_stopping(), retry_safe=True))
            case Verdict.IGNORE:
                log.warning("call ignored", call_id=routed.call.call_id, program_id=routed.call.program_id)

    async def _run(self, routed: RoutedCall, stream: CallStream) -> None:
        end = await stream.run()
        account = await self._executor.account(routed.call.call_id)
        end = FORGOTTEN if stream.forgotten else end
        del self._streams[routed.call.call_id]
        self._end(routed, end, account=account, seq=stream.seq + 1)
        named = {"gen_ai.conversation.id": routed.call.program_id, "autellix.engine.id": self._core.engine_id}
        error = "" if end.outcome == "finished" else (end.error and end.error.code) or end.outcome
        stream.span.end({**named, **tracing.used(account), "autellix.call.id": routed.call.call_id}, error=error)

    def _end(self, routed: RoutedCall, end: End, *, account: Any = no_account, seq: int = 1) -> None:
        self._say(*self._core.end(routed, end, account, seq=seq, now_ms=wall_ms()))
        if not self._core.live:
            self._idle.set()
        log.info(
            "call ended",
            program_id=routed.call.program_id,
            call_id=routed.call.call_id,
            engine_id=self._core.engine_id,
            outcome=end.outcome,
            status=end.status,
            code=end.error.code if end.error else None,
            error=end.error.message if end.error and end.status >= 500 else None,  # else it may quote a prompt
            **account._asdict(),
        )

    def _on_cancel(self, order: CancelCalls, _reply: Reply | None) -> None:
        for call_id in self._core.cancel(call_id=order.call_id, program_id=order.program_id):
            if call_id in self._streams:
                self._streams[call_id].stop(End(cancelled="with its program" if order.program_id else "by its client"))

    def _on_forget(self, order: ForgetCalls, _reply: Reply | None) -> None:
        for call_id in order.call_ids if order.incarnation == self._core.incarnation else ():
            if call_id in self._streams:
                self._streams[call_id].stop(FORGOTTEN)

    def _on_release(self, order: ReleaseHeld, _reply: Reply | None) -> None:
        for call_id in self._core.release(order):
            stream = self._streams.get(call_id)
            if stream and not stream.seq:  # else it has begun, and the news of that is on its way
                stream.stop(RELEASED)

    def _on_turn(self, turn: Turn) -> None:
        """Tell observers that a call is held, begins or ceases to run."""
        stream = self._streams.get(turn.call_id)
        if stream:
            if isinstance(turn, Started):
                stream.placed = self._core.placed(stream.routed, turn.wait_ms)
            event = self._core.turn(stream.routed, turn, now_ms=wall_ms())
            self._say(announce(event))
            stream.span.event(str(event.__struct_config__.tag))
            if isinstance(event, CallHeld):
                log.info(
                    "call held",
                    program_id=event.program_id,
                    call_id=event.call_id,
                    engine_id=event.engine_id,
                    reason=event.reason,
                )

    # --- the engine

    def _on_control(self, order: ControlEngine, reply: Reply | None) -> None:
        if order.action not in ("drain", "resume"):
            self._say(*answer(reply, _refusal("action must be 'drain' or 'resume'")))
            return
        self._core.draining = order.action == "drain"
        load = self._load()
        self._say(announce(load), *answer(reply, load))

    def _on_series(self, _order: GetSeries, reply: Reply | None) -> None:
        series = EngineSeries(engine_id=self._core.engine_id, text=self._executor.series())
        self._say(*answer(reply, series))

    def _on_priorities(self, priorities: Priorities, _reply: Reply | None) -> None:
        self._executor.tell(priorities)

    def _on_program_over(self, end: ProgramEnd, _reply: Reply | None) -> None:
        self._executor.tell(ProgramOver(program_id=end.program_id))

    async def _beat_forever(self) -> None:
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._idle.wait(), self._settings.heartbeat_s)
                    await asyncio.sleep(IDLE_S)
                self._idle.clear()
                self._say(announce(self._load()))
        except EngineGoneError as error:
            log.error("engine died", engine_id=self._core.engine_id, error=str(error))  # noqa: TRY400 - no traceback of ours
            self._parting = "its engine died"
            await self._wait_for_calls(LAST_WORDS_S)
            self._on_gone()

    def _load(self) -> EngineLoad:
        return self._core.heartbeat(self._executor.info, self._executor.load(), now_ms=wall_ms())


def _stopping() -> ErrorBody:
    return ErrorBody(message="The engine is stopping.", type="server_error", code="engine_stopping")


def _refusal(text: str) -> Failed:
    return Failed(status=400, error=ErrorBody(message=text[:1000], type="invalid_request_error"))
