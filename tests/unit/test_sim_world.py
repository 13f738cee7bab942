"""The whole product in virtual time: runs from end to end."""

from collections import Counter
from itertools import pairwise
from typing import Any, Literal, get_args

import msgspec
import pytest

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_EVENTS, ENGINE_EVENTS, FRAMES
from autellix.schemas.ids import EngineId, Incarnation
from autellix.schemas.messages import CallRouted, CancelCalls, EngineDown, Failed, Finished, ProgramRecord
from autellix.schemas.traces.workloads import arrivals
from autellix.services.config import LoadBalancerSettings
from autellix.services.simulator.scenario import PolicyName, Scenario
from autellix.services.simulator.virtual_bus import Envelope
from autellix.services.simulator.world import World, simulate

POLICIES = get_args(PolicyName)
SMALL = {"engine": {"slots": 3, "kv_tokens": 8192, "max_model_len": 8192}}


def scenario(**values: Any) -> Scenario:
    """Return a run of a few programs that compete for few slots, all of them measured."""
    known = {"workload": "sharegpt", "programs": 12, "max_context_tokens": 3000, "rate_per_s": 2.0, "overrides": SMALL}
    return Scenario(**{**known, "measure_from": 0.0, "measure_to": 1.0, **values})


def world(*, coded: bool = False, **values: Any) -> World:
    """Return a world that has not run."""
    chosen = scenario(**values)
    return World(chosen, arrivals(chosen), coded=coded)


def listening(to: World, subject: str, decoder: Any = FRAMES) -> list[Envelope]:
    """Return a list that fills with what is published on a subject."""
    heard: list[Envelope] = []
    to.bus.subscribe(subject, decoder, heard.append)
    return heard


def rows(of: World) -> list[ProgramRecord]:
    """Return the records of the process table."""
    return [row.record for row in of.table._rows.values()]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_program_finishes(policy: str) -> None:
    """Under every policy each program finishes with all its calls and tokens, trees and conversations alike."""
    chosen = scenario(policy=policy, workload="mixed", max_context_tokens=9000, programs=6, overrides={})
    wanted = {n: arrival.program for n, arrival in enumerate(arrivals(chosen))}
    result = simulate(chosen)

    assert {n: len(program.calls) for n, program in wanted.items()} == {r.number: r.calls for r in result.programs}
    assert {n: sum(call.output_tokens for call in program.calls) for n, program in wanted.items()} == {
        row.number: row.output_tokens for row in result.programs
    }
    assert {"finished"} == {row.outcome for row in result.programs}


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_left_behind(policy: str) -> None:
    """Each submitted call gets exactly one terminal frame; at the end no service and no engine holds anything."""
    ran = world(policy=policy, engines=2)
    submitted = listening(ran, subjects.CALLS_SUBMIT)
    frames = listening(ran, "_INBOX.>")
    ran.run()
    ends = Counter(e.message.call_id for e in frames if isinstance(e.message, Finished | Failed))

    assert len(submitted) == len(ends) > 12
    assert {1} == set(ends.values())
    assert (0, {}, {}) == (len(ran.manager._sessions), ran.agents, ran.store)
    assert [0, 0] == [engine.used for engine in ran.balancer._engines.values()]
    assert {0} == {record.live_calls for record in rows(ran)}
    assert {"ended"} == {record.state for record in rows(ran)}
    assert [(0, 0, 0.0)] * 2 == [worker.engine.load(0.0)[:3] for worker in ran.workers]


@pytest.mark.parametrize("policy", POLICIES)
def test_coding_the_messages_changes_nothing(policy: str) -> None:
    """A run on a bus that encodes and decodes every message gives the same result, to the byte."""
    passed, coded = (world(coded=coded, policy=policy, engines=2, keep_calls=True).run() for coded in (False, True))

    assert passed.as_json() == coded.as_json()


def test_one_seed_gives_the_same_bytes() -> None:
    """The same scenario gives the same JSON again, and another seed gives another."""
    first, again, other = (simulate(scenario(seed=seed, keep_calls=True)).as_json() for seed in (3, 3, 4))

    assert first == again
    assert first != other


def test_service_is_what_the_engine_worked() -> None:
    """With one slot each step serves one call: the table's service adds up to the time the engine was busy."""
    ran = world(overrides={"engine": {**SMALL["engine"], "slots": 1}})
    (engine,) = ran.run().engines

    assert engine.counters.busy_ms == pytest.approx(sum(record.service_ms for record in rows(ran)), rel=1e-9)


def test_the_table_knows_what_the_rows_know() -> None:
    """Service, waiting and tokens of the result are those of the process table."""
    ran = world(engines=2, beta=1.0)
    result = ran.run()
    records = {record.started_at_ms: record for record in rows(ran)}

    assert [(r.service_ms, r.wait_ms, r.cached_tokens) for r in result.programs] == [
        pytest.approx((record.service_ms, record.waiting_ms, record.cached_tokens))
        for record in (records[row.arrived_at_ms] for row in result.programs)
    ]


@pytest.mark.parametrize(("policy", "at_home"), [("home", "home engine"), ("autellix", "long prompt: home engine")])
def test_calls_go_home(policy: Literal["home", "autellix"], at_home: str) -> None:
    """A program's calls go to the engine that became its home last, and programs to different ones."""
    ran = world(programs=16, engines=3, max_context_tokens=8000, balancer=LoadBalancerSettings(policy=policy))
    events = listening(ran, subjects.CALL_ROUTED_EVENT, CALL_EVENTS)
    ran.run()
    homes: dict[str, str] = {}
    found: list[bool] = []
    for event in (envelope.message for envelope in events if isinstance(envelope.message, CallRouted)):
        if event.becomes_home:
            homes[event.program_id] = event.engine_id
        elif event.reason == at_home:
            found.append(homes[event.program_id] == event.engine_id)

    assert len(found) > 2
    assert all(found)
    assert 1 < len(set(homes.values()))


def test_prefixes_are_found_in_simulated_prompts() -> None:
    """The rule that reads prompts sends a conversation on to an engine that had its beginning."""
    ran = world(programs=16, engines=3, max_context_tokens=8000, balancer=LoadBalancerSettings(policy="prefix_tree"))
    events = listening(ran, subjects.CALL_ROUTED_EVENT, CALL_EVENTS)
    ran.run()
    had: set[tuple[str, str]] = set()
    again = 0
    for event in (envelope.message for envelope in events):
        place = (event.program_id, event.engine_id)
        if event.reason.startswith("long prefix: "):
            assert place in had
            again += 1
        had.add(place)

    assert 12 < again


def test_a_program_fails_with_its_call() -> None:
    """A call that failed for good ends its program; what else of it ran is cancelled, and nothing is left."""
    ran = world(workload="lats", programs=1, rate_per_s=None, max_context_tokens=None)
    frames = listening(ran, "_INBOX.>")
    ran.clock.at(3000.0, lambda: ran.bus.publish(subjects.CALLS_CANCEL, _first_live(ran)))
    result = ran.run()
    failures = [envelope.message for envelope in frames if isinstance(envelope.message, Failed)]

    assert ["failed"] == [row.outcome for row in result.programs]
    assert 1 == result.summary.failed
    assert 1 < len(failures)
    assert (0, {}, {}) == (len(ran.manager._sessions), ran.agents, ran.store)
    assert [(0, 0, 0.0)] == [worker.engine.load(0.0)[:3] for worker in ran.workers]


def _first_live(of: World) -> CancelCalls:
    return CancelCalls(call_id=next(iter(of.workers[0].core.live)))


def test_a_call_that_no_engine_took_is_tried_again() -> None:
    """While no engine is in rotation calls fail as safe to retry; agents try again, and every program finishes."""
    ran = world(programs=3, rate_per_s=None)
    down = EngineDown(engine_id=EngineId("engine-0"), incarnation=Incarnation("1"), reason="stopped", at_ms=0.0)
    ran.bus.publish(subjects.event(down), down)
    result = ran.run()

    assert [("finished", 1)] * 3 == [(row.outcome, row.retries) for row in result.programs]


def test_engines_say_how_busy_they_are() -> None:
    """An engine says that it is up, then how busy it is each second, and soon after it fell idle."""
    ran = world(programs=1, rate_per_s=None)
    loads = listening(ran, "autellix.events.engine.load", ENGINE_EVENTS)
    ran.run()
    times = [envelope.message.at_ms for envelope in loads]

    assert times == sorted(set(times))
    assert max(later - earlier for earlier, later in pairwise(times)) <= 1000
    assert {1} >= {envelope.message.calls for envelope in loads} - {0}


def test_heartbeats_are_kept_if_asked_for() -> None:
    """A result has every heartbeat of every engine if the scenario says so, and else none."""
    kept, plain = (world(engines=2, keep_loads=keep) for keep in (True, False))
    heard = listening(kept, "autellix.events.engine.load", ENGINE_EVENTS)

    loads = kept.run().loads

    assert [envelope.message for envelope in heard] == loads
    assert [] == plain.run().loads
    assert {"engine-0", "engine-1"} == {envelope.message.engine_id for envelope in heard}


def test_the_limit_of_time_is_told() -> None:
    """A run that reaches its limit says so, and which programs it left."""
    result = simulate(scenario(limit_s=2.0, rate_per_s=None))

    assert result.summary.limit_hit
    assert 2000.0 == result.summary.virtual_ms
    assert 0 < result.summary.unfinished == sum(row.outcome == "unfinished" for row in result.programs)


def test_the_middle_of_the_arrivals_is_measured() -> None:
    """Between two shares of the arrivals programs are measured; the run ends with the last of them."""
    result = simulate(scenario(programs=10, measure_from=0.2, measure_to=0.8))

    assert list(range(2, 8)) == [row.number for row in result.programs]
    assert result.summary.virtual_ms == max(row.ended_at_ms for row in result.programs)


@pytest.mark.parametrize(("measure_from", "measure_to", "number"), [(0.0, 0.001, 0), (0.999, 1.0, 2)])
def test_at_least_one_program_is_measured(measure_from: float, measure_to: float, number: int) -> None:
    """However narrow the shares are, one of the programs lies between them."""
    result = simulate(scenario(programs=3, measure_from=measure_from, measure_to=measure_to))

    assert [number] == [row.number for row in result.programs]


def test_another_policy_gets_the_same_programs() -> None:
    """Policy, rate and number of engines change neither which programs arrive nor their order."""
    chosen = [
        [arrival.program.program_id for arrival in arrivals(each)]
        for each in (scenario(), scenario(policy="fcfs", engines=4, rate_per_s=0.5), scenario(rate_per_s=None))
    ]

    assert chosen[0] == chosen[1] == chosen[2]


def test_a_result_is_read_back() -> None:
    """The JSON of a result holds its scenario, which gives the same result again."""
    result = simulate(scenario(programs=3))
    again = simulate(msgspec.convert(msgspec.json.decode(result.as_json())["scenario"], Scenario))

    assert result.as_json() == again.as_json()
