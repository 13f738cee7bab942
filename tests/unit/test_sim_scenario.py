"""Scenarios and workloads: what is refused before anything runs, and what arrives."""

import pickle
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from autellix.engine.simulation.calibration import CalibrationError
from autellix.schemas.traces.workloads import WorkloadError, arrivals
from autellix.services.config import LoadBalancerSettings
from autellix.services.simulator.scenario import Scenario, ScenarioError, from_tree, put
from autellix.services.simulator.world import simulate


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"polcy": "fcfs"}, "unknown field `polcy`"),
        ({"policy": "lottery"}, "Invalid enum value 'lottery' - at `$.policy`"),
        ({"programs": 0}, "`int` >= 1 - at `$.programs`"),
        ({"rate_per_s": 0}, "> 0.0 - at `$.rate_per_s`"),
        ({"rate_per_s": float("inf")}, "<= 1000000.0 - at `$.rate_per_s`"),
        ({"rate_per_s": 1e-300}, "rate_per_s: so few arrivals take longer than limit_s"),
        ({"engines": 100_000}, "<= 4096 - at `$.engines`"),
        ({"first_quantum_ms": float("inf")}, "<= 1000000000.0 - at `$.first_quantum_ms`"),
        ({"first_quantum_ms": 1e-320}, ">= 0.001 - at `$.first_quantum_ms`"),
        ({"beta": float("inf")}, "<= 1000000000.0 - at `$.beta`"),
        ({"beta": -1}, "> 0.0 - at `$.beta`"),
        ({"queues": 65}, "<= 64 - at `$.queues`"),
        ({"balancer": {"policy": "x"}}, "Invalid enum value 'x' - at `$.balancer.policy`"),
        ({"measure_from": 0.8, "measure_to": 0.2}, "measure_from must be below measure_to"),
        ({"interrupt_cap_s": 1e9}, "<= 86000.0 - at `$.interrupt_cap_s`"),
    ],
)
def test_a_bad_value_is_refused_by_key(values: dict[str, Any], why: str) -> None:
    """A value that makes no sense is refused, naming the key."""
    with pytest.raises(ScenarioError) as refused:
        from_tree(values)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("values", "error", "why"),
    [
        ({"policy": "lottery"}, ScenarioError, "at `$.policy`"),
        ({"overrides": {"engine": {"slts": 1}}}, ScenarioError, "unknown field `slts` - at `$.engine`"),
        ({"overrides": {"engine": {"slots": 0}}}, ScenarioError, ">= 1 - at `$.engine.slots`"),
        ({"overrides": {"motor": {"slots": 1}}}, ScenarioError, "no table 'motor'"),
        ({"preemption": "swap", "swap": "pigeon"}, ScenarioError, "preemption by swap needs a swap timing"),
        ({"calibration": "abacus"}, CalibrationError, "abacus"),
        ({"workload": "poems"}, WorkloadError, "'poems' is neither one of sharegpt"),
        ({"max_calls": 1, "workload": "lats"}, WorkloadError, "every program is above max_calls"),
    ],
)
def test_what_makes_no_sense_does_not_run(values: dict[str, Any], error: type[ValueError], why: str) -> None:
    """A scenario that was built by hand is checked too, and so is what it names."""
    with pytest.raises(error) as refused:
        simulate(Scenario(programs=2, **values))

    assert why in str(refused.value)


def test_programs_that_do_not_fit_are_refused_by_name() -> None:
    """A program that outgrows the engine is refused by name, unless it is left out on purpose."""
    small: dict[str, dict[str, int | float]] = {"engine": {"kv_tokens": 6000, "slots": 2}}
    scenario = Scenario(workload="bfcl", programs=20, overrides=small, rate_per_s=None)

    with pytest.raises(WorkloadError, match=r"of 20 programs do not fit .* 6000 tokens: bfcl-\w+ grows to \d+"):
        simulate(scenario)
    assert 12 == len(simulate(replace(scenario, max_context_tokens=6000)).programs)


def test_settings_are_put_by_key() -> None:
    """`key=value` sets a number, a truth value, a text or a value inside a table."""
    tree: dict[str, Any] = {}
    for setting in ("beta=4", "prefix_cache=false", "swap=per_block", "balancer.short_prompt_tokens=512"):
        put(tree, setting)

    assert (
        Scenario(beta=4.0, prefix_cache=False, swap="per_block", balancer=LoadBalancerSettings(short_prompt_tokens=512))
    ) == from_tree(tree)


@pytest.mark.parametrize("setting", ["beta", "=4", "beta.", "swap.name=1"])
def test_what_is_no_setting_is_refused(setting: str) -> None:
    """Text without key and value, or inside what is no table, is refused."""
    with pytest.raises(ScenarioError):
        put({"swap": "bulk"}, setting)


def test_a_scenario_travels_between_processes() -> None:
    """A scenario is frozen and can be pickled."""
    scenario = Scenario(overrides={"engine": {"slots": 3}})

    assert scenario == pickle.loads(pickle.dumps(scenario))
    with pytest.raises(AttributeError):
        scenario.seed = 2  # type: ignore[misc]


def test_a_mix_has_equal_parts() -> None:
    """The mixed workload has as many programs of each trace, in random order."""
    traces = [arrival.trace for arrival in arrivals(Scenario(workload="mixed", programs=30))]

    assert [10] * 3 == [traces.count(trace) for trace in sorted(set(traces))]
    assert traces != sorted(traces)


def test_programs_arrive_at_their_rate() -> None:
    """Times ascend, their mean gap is that of the rate, and another rate stretches the same pattern."""
    slow, fast = ([each.at_ms for each in arrivals(Scenario(programs=2000, rate_per_s=rate))] for rate in (1.0, 4.0))

    assert all(earlier < later for earlier, later in pairwise(slow))
    assert pytest.approx(1000.0, rel=0.1) == slow[-1] / len(slow)
    assert pytest.approx(slow) == [4 * at_ms for at_ms in fast]


def test_programs_come_twice_only_when_there_are_too_few() -> None:
    """A workload has different programs as long as its trace does, and then some again."""
    few, many = ([a.program.program_id for a in arrivals(Scenario(workload="lats", programs=n))] for n in (300, 301))

    assert 300 == len(set(few))
    assert 301 == len(many) > len(set(many))
