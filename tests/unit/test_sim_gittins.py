"""The policy `gittins` on the whole product in virtual time, and what the traces say about its premise."""

from statistics import mean

import pytest

from autellix.schemas import subjects
from autellix.schemas.codec import Decoder
from autellix.schemas.messages import Priorities
from autellix.schemas.traces.workloads import WORKLOADS, arrivals
from autellix.services.simulator.scenario import Scenario
from autellix.services.simulator.virtual_bus import Envelope
from autellix.services.simulator.world import World, simulate


@pytest.mark.parametrize(("workload", "programs", "rate_per_s"), [("sharegpt", 60, 1.0), ("mixed", 100, 0.2)])
def test_what_is_learnt_reaches_every_engine(workload: str, programs: int, rate_per_s: float) -> None:
    """Every program finishes; each engine goes by what the table learnt of each trace that had programs enough."""
    scenario = Scenario(
        policy="gittins", workload=workload, programs=programs, rate_per_s=rate_per_s, engines=2, measure_to=1.0
    )
    ran = World(scenario, arrivals(scenario))
    told: list[Envelope] = []
    ran.bus.subscribe(subjects.PRIORITIES, Decoder(Priorities), told.append)
    result = ran.run()
    newest = told[-1].message

    assert {"finished"} == {row.outcome for row in result.programs}
    assert {part.trace for part in WORKLOADS[workload]} == set(newest.kinds)
    assert [newest] * 2 == [worker.engine._queues._policy._known for worker in ran.workers]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("workload", "programs", "rate_per_s", "grows"),
    [("sharegpt", 150, 0.8, True), ("bfcl", 150, 0.4, False), ("lats", 40, 0.05, False)],
)
def test_residual_life(workload: str, programs: int, rate_per_s: float, *, grows: bool) -> None:
    """On conversations the longer a program has run the longer it has to go; on tool users and trees the shorter."""
    scenario = Scenario(
        policy="fcfs",
        workload=workload,
        programs=programs,
        rate_per_s=rate_per_s,
        measure_from=0.0,
        measure_to=1.0,
    )
    services = sorted(row.service_ms for row in simulate(scenario).programs)
    old = services[len(services) * 4 // 5]
    left = mean(service - old for service in services if service > old)

    assert left > 1.5 * mean(services) if grows else left < mean(services) / 1.5
