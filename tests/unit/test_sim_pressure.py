"""Engines that hold programs, in the whole product: what moves between them, and a crowd that all gets through."""

import gzip
import random
from collections.abc import Sized
from pathlib import Path
from typing import Any

import msgspec

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_EVENTS
from autellix.schemas.ids import EngineId, Incarnation
from autellix.schemas.messages import CallRouted, EngineDown
from autellix.schemas.traces.workloads import arrivals
from autellix.services.config import LoadBalancerSettings
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario
from autellix.services.simulator.worker import SimulatedWorker
from autellix.services.simulator.world import World


class Talk:
    """The calls of one program, as a trace has them."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def ask(self, *parents: int, after: int | None = None, new: int, output: int, think_s: float = 0.0) -> int:
        """Add a call whose prompt is the context of the call `after` (the first parent) and new tokens."""
        source = next(iter(parents), None) if after is None else after
        shared = 0 if source is None else self.calls[source]["prompt_tokens"] + self.calls[source]["output_tokens"]
        call = {"id": len(self.calls), "parents": parents, "interrupt_s": think_s, "prefix_from": source}
        lengths = {"prompt_tokens": shared + new, "output_tokens": output}
        self.calls.append(
            {**call, **lengths, "shared_prefix_tokens": shared, "system_tokens": 512 if not parents else 0}
        )
        return len(self.calls) - 1


def world(folder: Path, programs: list[Talk], *, kv_tokens: int, **values: Any) -> World:
    """Return a world of programs that all come at the start."""
    path = folder / "made.jsonl.gz"
    lines = [msgspec.json.encode({"program_id": f"p{n}", "calls": talk.calls}) for n, talk in enumerate(programs)]
    path.write_bytes(gzip.compress(b"\n".join(lines), 1))
    limits: dict[str, int | float] = {"kv_tokens": kv_tokens, "slots": 64, "max_model_len": kv_tokens}
    scenario = Scenario(
        workload=str(path),
        programs=len(programs),
        rate_per_s=None,
        overrides={"engine": limits},
        measure_from=0.0,
        measure_to=1.0,
        **{"policy": "auto", "gate": "fair", **values},
    )
    return World(scenario, arrivals(scenario))


def routes(of: World) -> list[CallRouted]:
    """Return a list that fills with the routes that are chosen."""
    chosen: list[CallRouted] = []
    of.bus.subscribe(subjects.CALL_ROUTED_EVENT, CALL_EVENTS, lambda envelope: chosen.append(envelope.message))
    return chosen


def conversation() -> Talk:
    """Return a program of eight calls with pauses for tools; its context grows from 10,000 to 15,000 tokens."""
    talk = Talk()
    last = talk.ask(new=10_000, output=100)
    for _ in range(7):
        last = talk.ask(last, new=500, output=100, think_s=2.0)
    return talk


def second_engine_comes_late(folder: Path, *, move_held: bool) -> tuple[Result, list[CallRouted]]:
    """Run 24 conversations that all begin on one of two engines, where a third of them fit at a time."""
    balancer = LoadBalancerSettings(move_held=move_held)
    ran = world(folder, [conversation() for _ in range(24)], kv_tokens=100_000, engines=2, balancer=balancer)
    chosen = routes(ran)
    down = EngineDown(engine_id=EngineId("engine-1"), incarnation=Incarnation("1"), reason="stopped", at_ms=0.0)
    ran.bus.publish(subjects.event(down), down)  # until its first heartbeat
    return ran.run(), chosen


def test_programs_move_to_where_there_is_room(tmp_path: Path) -> None:
    """Programs that their home holds go to an engine that stands idle, each with few calls, and all get more done."""
    moving, chosen = second_engine_comes_late(tmp_path, move_held=True)
    staying, kept = second_engine_comes_late(tmp_path, move_held=False)
    moves = [event for event in chosen if event.reason.startswith("home holds: ")]

    assert 24 == moving.summary.finished == staying.summary.finished
    assert ({"engine-0"}, "engine-1") == ({event.engine_id for event in kept}, moves[0].engine_id)
    assert 5 < len(moves) < 24
    assert moving.summary.output_tokens_per_s > 1.5 * staying.summary.output_tokens_per_s
    assert moving.summary.prefix_hit_rate > staying.summary.prefix_hit_rate - 0.05


def test_below_pressure_routes_are_the_same(tmp_path: Path) -> None:
    """While all programs fit, no route differs from those without a gate, and none moves."""
    programs = [conversation() for _ in range(12)]
    chosen = []
    for gate in ("fair", "off"):
        ran = world(tmp_path, programs, kv_tokens=400_000, engines=3, gate=gate)
        chosen.append(routes(ran))
        ran.run()

    assert 96 == len(chosen[0])
    assert chosen[1] == chosen[0]


def left_in(worker: SimulatedWorker) -> int:
    """Return how many things of any kind a worker, its engine and the gate still keep of programs and calls."""
    gate = worker.engine._batch.entrance._gate
    assert gate
    kept: list[Sized] = [worker.core.live, worker.core._held, worker._routed, worker._stopped]
    kept += [gate._programs, gate._residents, gate._of_call, gate._held, gate._room._claims, gate._room._had]
    return sum(map(len, kept)) + gate._room.used + worker.engine.load(0.0).running + worker.engine.load(0.0).waiting


def agent(chance: random.Random) -> Talk:
    """Return a program that thinks between its calls, and sends two sub-agents out whose answers it waits for."""
    talk = Talk()
    first = talk.ask(new=chance.randint(1500, 3000), output=chance.randint(10, 60))
    reports = []
    for _ in range(2):
        begun = talk.ask(first, new=200, output=chance.randint(10, 60))
        reports.append(talk.ask(begun, new=300, output=20, think_s=chance.uniform(0.5, 3.0)))
    joined = talk.ask(*reports, after=first, new=chance.randint(100, 400), output=30, think_s=chance.uniform(2.0, 20.0))
    talk.ask(joined, new=chance.randint(100, 400), output=40, think_s=chance.uniform(2.0, 20.0))
    return talk


def test_a_crowd_gets_through(tmp_path: Path) -> None:
    """2,048 agents at once on 16 engines that hold a third of them all finish, and nothing of them is left anywhere.

    It is the load that deadlocked another system: turns with pauses, and sub-agents, far beyond the KV cache.
    """
    chance = random.Random(1)
    crowd = world(tmp_path, [agent(chance) for _ in range(2048)], kv_tokens=65_536, engines=16, keep_loads=True)
    result = crowd.run()

    most_held = {worker.core.engine_id: 0 for worker in crowd.workers}
    for load in result.loads:
        most_held[load.engine_id] = max(most_held[load.engine_id], load.programs_held)

    assert (2048, 0, 0) == (result.summary.finished, result.summary.failed, result.summary.unfinished)
    assert 64 < min(most_held.values())
    assert [0] * 16 == [left_in(worker) for worker in crowd.workers]
    assert [0] * 16 == [engine.used for engine in crowd.balancer._engines.values()]
    assert (0, {}, 0) == (len(crowd.manager._sessions), crowd.balancer._engine_of, len(crowd.balancer._homes))
    assert {("ended", 0)} == {(row.record.state, row.record.live_calls) for row in crowd.table._rows.values()}
