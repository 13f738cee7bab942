"""One call on its engine: from its first step to how it ended."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import structlog

from autellix.engine.executor import Account, Answer, EngineCall, EngineGoneError, Executor, Piece, Refusal
from autellix.schemas.base import ErrorBody
from autellix.schemas.messages import Chunk, Placed, RoutedCall
from autellix.schemas.openai import APIS
from autellix.services import tracing
from autellix.services.core import Out
from autellix.services.engine_worker.core import FORGOTTEN, End
from autellix.services.runner import wall_ms

log = structlog.get_logger()

no_account = Account()

PREAMBLE = frozenset({"response.created", "response.in_progress"})
"""Events that a stream of `/v1/responses` has before the engine knows of the call: they wait for the first that says
something, so that a call that is held has told its client nothing."""


class CallStream:
    """Runs one call and publishes its chunks; `stop` ends it early."""

    def __init__(self, routed: RoutedCall, executor: Executor, say: Callable[[Out], None]) -> None:
        self.routed = routed
        name, about = tracing.asked(routed.call.api, routed.call.model)
        self.span = tracing.span(f"engine {name}", routed.call.trace, about)
        self.seq = 0
        """Chunks published so far."""
        self.forgotten = False
        """Whether it was stopped as none of ours, be it when it was over already."""
        self.placed: Placed | None = None
        """What the first chunk says of where it comes from, once that is known."""
        self._executor = executor
        self._say = say
        self._task: asyncio.Task[End] | None = None
        self._stopped: End | None = None

    async def run(self) -> End:
        """Return how the call ended; whatever happens, it ends."""
        if self._stopped is None:
            self._task = asyncio.create_task(self._follow())
            await asyncio.wait({self._task})
            if self._stopped is None and not self._task.cancelled():
                return self._task.result()
        return self._stopped or End(cancelled="for no known reason")

    def stop(self, end: End) -> None:
        """Abort the call in the engine; it ends as `end` says, unless it is over or was stopped already."""
        self.forgotten |= end.forgotten
        if self._stopped or (self._task and self._task.done()):
            return
        self._stopped = end
        if self._task:
            self._task.cancel()

    async def _follow(self) -> End:
        call = self.routed.call
        left_s = None if call.deadline_at_ms is None else (call.deadline_at_ms - wall_ms()) / 1000
        late = _error("The deadline passed before the answer was whole.", "deadline_exceeded")
        if left_s is not None and left_s <= 0:
            return End(status=504, error=late)
        try:
            async with asyncio.timeout(left_s):
                return await self._until_end()
        except TimeoutError:
            return End(status=504, error=late)
        except EngineGoneError:
            if not self.seq:  # the client has heard nothing: the balancer has it run elsewhere when we say goodbye
                return FORGOTTEN
            return End(status=503, error=_error("The engine died during this call.", "engine_lost"))
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # one call must not end the worker; a panic in Rust is no Exception
            log.exception("call failed", call_id=call.call_id, program_id=call.program_id)
            return End(status=500, error=_error(f"internal error: {type(error).__name__}", "internal_error"))

    async def _until_end(self) -> End:
        call = self.routed.call
        if call.api not in APIS:
            return End(status=404, error=_error(f"Unknown API: {call.api[:80]!r}.", "unknown_api"))
        engine_call = EngineCall(
            call_id=call.call_id,
            program_id=call.program_id,
            thread_id=call.thread_id,
            api=call.api,
            body=call.body,
            stream=call.stream,
            program=self.routed.program,
            trace=self.span.context,
        )
        waiting: list[Any] = []
        async with aclosing(self._executor.run(engine_call)) as outputs:
            async for output in outputs:
                match output:
                    case Piece(data):
                        waiting += data
                        if not all(map(_is_preamble, waiting)):
                            self._tell(waiting)
                            waiting = []
                    case Answer(response):
                        if waiting:
                            self._tell(waiting)
                        return End(response=response)
                    case Refusal(status, error):
                        return End(status=status, error=error)
        return End(status=502, error=_error("The engine ended its answer without an end.", "no_end"))

    def _tell(self, data: list[Any]) -> None:
        """Publish a chunk."""
        call = self.routed.call
        self.seq += 1
        placed = self.placed if self.seq == 1 else None
        chunk = Chunk(call_id=call.call_id, seq=self.seq, data=data, placed=placed)
        self._say(Out(call.reply_to, chunk, call.reply_json))


def _is_preamble(event: Any) -> bool:
    return isinstance(event, dict) and event.get("type") in PREAMBLE


def _error(text: str, code: str) -> ErrorBody:
    return ErrorBody(message=text, type="server_error", code=code)
