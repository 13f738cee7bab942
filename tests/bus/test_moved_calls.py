"""A call that one engine holds and another takes over, on both buses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from autellix.engine.executor import EngineCall, Held, Load, Output
from autellix.engine.simulated import SimulatedExecutor
from autellix.schemas import subjects
from autellix.schemas.codec import encode
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import (
    Accepted,
    CallHeld,
    CallRouted,
    CallStarted,
    CancelCalls,
    Chunk,
    Failed,
    Finished,
    ListPrograms,
    ProgramList,
    ReleaseHeld,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.bus.conftest import Pipeline


class FullEngine(SimulatedExecutor):
    """An engine that has no room for any program: it holds every call for good."""

    async def run(self, call: EngineCall) -> AsyncGenerator[Output, None]:
        """Hold the call until it is aborted, then say that it ends."""
        self.on_turn(Held(call.call_id, "plas", 0, 2000, 1000))
        self._running.add(call.call_id)
        try:
            await asyncio.Event().wait()
            yield  # type: ignore[misc] # never reached: it makes this a generator
        finally:
            self._running.discard(call.call_id)

    def load(self) -> Load:
        """Say how many calls are held, and that their programs wait for a minute."""
        held = len(self._running)
        return Load(programs_held=held, held_tokens=2000 * held, pool_ms=1000.0, expected_wait_ms=60_000.0 * bool(held))


async def idle(pipeline: Pipeline) -> list[int]:
    """Return each program's live calls when the engines say that they have none."""
    while any((await pipeline.engines()).values()):
        pass
    table: ProgramList = await pipeline.client.ask(subjects.PROGRAMS_LIST, ListPrograms())
    return [program.live_calls for program in table.programs]


async def test_a_held_call_moves(pipeline: Pipeline) -> None:
    """A held call runs on an engine that comes later: it starts once, and its client sees one whole stream."""
    await pipeline.start_engine("e0", engine=FullEngine)
    inbox = await pipeline.client.submit({"stream": True})
    held: CallHeld = await pipeline.client.heard.event("call.held")
    await pipeline.start_engine("e1")
    accepted, *chunks, finished = await inbox.frames()
    events = pipeline.client.events()
    (routed,) = [event for event in events if isinstance(event, CallRouted)]
    started = [event.engine_id for event in events if isinstance(event, CallStarted)]

    assert isinstance(accepted, Accepted)
    assert [1, 2, 3] == [chunk.seq for chunk in chunks if isinstance(chunk, Chunk)]
    assert isinstance(finished, Finished)
    assert ("e0", "e1", ["e1"]) == (held.engine_id, routed.engine_id, started)
    assert routed.reason.startswith("home holds: 60.0 s against ")
    assert [0] == await idle(pipeline)
    assert [] == inbox.arrived()


async def test_cancelled_while_it_moves(pipeline: Pipeline) -> None:
    """Calls that are cancelled in the moment in which they are given back end once each, and none is left anywhere."""
    await pipeline.start_engine("e0", engine=FullEngine)
    inboxes = [await pipeline.client.submit() for _ in range(20)]
    call_ids = [pipeline.client.decoded((await inbox.next()).data).call_id for inbox in inboxes]
    for _ in inboxes:
        await pipeline.client.heard.event("call.held")
    await pipeline.start_engine("e1")
    order = encode(ReleaseHeld(prompt_tokens_max=10**6, models=("m",)))
    for call_id in call_ids:
        await pipeline.client.bus.publish(subjects.engine_release(EngineId("e0")), order)
        await pipeline.client.ask(subjects.CALLS_CANCEL, CancelCalls(call_id=call_id))
    ends = [(await inbox.frames())[-1] for inbox in inboxes]

    assert {200, 499} >= {end.status if isinstance(end, Failed) else 200 for end in ends}
    assert [0] * 20 == await idle(pipeline)
    assert [[]] * 20 == [inbox.arrived() for inbox in inboxes]
