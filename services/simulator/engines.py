"""Builds the simulated engines that a scenario asks for."""

from collections.abc import Callable

import msgspec

from autellix.engine.executor import EngineInfo
from autellix.engine.policy import Policy, default_gate, policy_named
from autellix.engine.policy.fitting import LadderFitter
from autellix.engine.policy.ladder import Ladder
from autellix.engine.policy.queues import CallQueues
from autellix.engine.policy.round_robin import RoundRobin
from autellix.engine.policy.srpt import Srpt
from autellix.engine.simulation.calibration import load_calibration
from autellix.engine.simulation.engine import SimulatedEngine
from autellix.engine.simulation.timing import Calibration, EngineOptions
from autellix.schemas.ids import ProgramId
from autellix.services.simulator.agent import MODEL
from autellix.services.simulator.scenario import Scenario, ScenarioError

RemainingMs = Callable[[ProgramId], float]
"""The work that a program still needs, which only a simulator can know."""


def calibration_of(scenario: Scenario) -> Calibration:
    """Return the calibration of a scenario, its overrides applied.

    Raises:
        CalibrationError: for a calibration that makes no sense.
        ScenarioError: for an override that makes none.
    """
    tree = msgspec.to_builtins(load_calibration(scenario.calibration))
    for table, values in scenario.overrides.items():
        if not isinstance(tree.get(table), dict):
            raise ScenarioError(f"overrides: a calibration has no table {table!r}")
        tree[table] |= values
    try:
        return msgspec.convert(tree, Calibration)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"overrides: {error}") from error


def options_of(scenario: Scenario, calibration: Calibration) -> EngineOptions:
    """Return how each engine works.

    Raises:
        ScenarioError: for options that contradict each other.
    """
    copies = scenario.preemption == "swap" or scenario.kv_tier_tokens
    swap = calibration.swap.get(scenario.swap) if copies else None
    try:
        return EngineOptions(
            limits=calibration.engine,
            prefix_cache=scenario.prefix_cache,
            chunked_prefill=scenario.chunked_prefill,
            preemption=scenario.preemption,
            swap=swap,
            tier_tokens=scenario.kv_tier_tokens,
            policy_interval_steps=scenario.policy_interval_steps,
            preemptions_per_step_max=scenario.preemptions_per_step_max,
            scheduler_ms=scenario.scheduler_ms,
            gate=scenario.gate or default_gate(scenario.policy),
        )
    except ValueError as error:
        raise ScenarioError(str(error)) from error


def capacity_tokens(calibration: Calibration) -> int:
    """Return the longest sequence that an engine can hold."""
    limits = calibration.engine
    return min(limits.kv_tokens // limits.block_size * limits.block_size, limits.max_model_len)


def engine_info(scenario: Scenario, calibration: Calibration) -> EngineInfo:
    """Return what each engine tells of itself."""
    limits = calibration.engine
    return EngineInfo((MODEL,), scenario.policy, limits.slots, limits.kv_tokens, limits.max_model_len)


def new_engine(scenario: Scenario, calibration: Calibration, remaining_ms: RemainingMs) -> SimulatedEngine:
    """Return one idle engine."""
    fitter = LadderFitter(first_quantum_ms=scenario.first_quantum_ms) if _is_fitted(scenario) else None
    ladder = Ladder.doubling(first_quantum_ms=scenario.first_quantum_ms, queues=scenario.queues)
    queues = CallQueues(_policy(scenario, remaining_ms), ladder, beta=scenario.beta, fitter=fitter)
    return SimulatedEngine(queues, calibration.step, options_of(scenario, calibration))


def _is_fitted(scenario: Scenario) -> bool:
    """Tell whether the policy has a ladder, and one that is to follow the load."""
    return scenario.fit_ladder and scenario.policy not in ("fcfs", "srpt", "round_robin")


def _policy(scenario: Scenario, remaining_ms: RemainingMs) -> Policy:
    match scenario.policy:
        case "srpt":
            return Srpt(remaining_ms)
        case "round_robin":
            return RoundRobin(scenario.first_quantum_ms)
        case name:
            return policy_named(name)
