"""More calls at once than the cache holds: whatever the order, the engine gets on."""

import random

import pytest
from msgspec.structs import replace

from autellix.engine.policy import call_queues, policy_named
from autellix.engine.simulation.calibration import load_calibration
from autellix.engine.simulation.calls import Counters, Ended, SimulatedCall
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.timing import EngineOptions
from autellix.schemas.ids import CallId, ProgramId
from autellix.schemas.messages import ProgramFacts

SLOTS, CALLS = 32, 400


def burst(policy: str, first_quantum_ms: float) -> tuple[float, Counters]:
    """Serve 400 calls that come at once and of which the cache holds half; return the makespan, and what was done."""
    calibration = load_calibration("a100-80gb-llama-3.1-8b")
    limits = calibration.engine
    options = EngineOptions(limits=replace(limits, slots=SLOTS))
    queues = call_queues(policy_named(policy), first_quantum_ms=first_quantum_ms, queues=12, beta=8.0, fit_ladder=True)
    engine, chance, key, ended_ms = SimulatedEngine(queues, calibration.step, options), random.Random(1), 0, 0.0
    for number in range(CALLS):
        prompt, output = chance.randint(500, 3000), chance.randint(100, 600)
        keys = range(key, key + (prompt + output) // limits.block_size)
        key = keys.stop
        call_id, program_id = CallId(f"c{number}"), ProgramId(f"p{number}")
        engine.add(SimulatedCall(call_id, program_id, ProgramFacts(), prompt, output, keys), 0.0)
    left = CALLS
    while engine.next_ms < 2e6 and left:
        for at_ms, what in engine.advance(engine.next_ms):
            if isinstance(what, Ended):
                left, ended_ms = left - 1, at_ms
    assert left == 0
    return ended_ms, engine.counters


@pytest.mark.parametrize("policy", ["mlfq", "plas", "atlas"])
@pytest.mark.parametrize("first_quantum_ms", [20.0, 100.0, 1000.0])
def test_a_burst_is_served(policy: str, first_quantum_ms: float) -> None:
    """With a quantum as short as a prefill, calls do not put each other out for ever, nor compute much twice."""
    fcfs_ms, _ = burst("fcfs", first_quantum_ms)
    took_ms, did = burst(policy, first_quantum_ms)

    assert took_ms < 1.6 * fcfs_ms
    assert did.preemptions < 2 * CALLS
