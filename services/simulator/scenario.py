"""What is simulated: everything that decides a run, so that equal scenarios have equal results."""

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from autellix.schemas.traces.scale import Scale
from autellix.services.config import Count, LoadBalancerSettings, Positive, Settings

Share = Annotated[float, Meta(ge=0, le=1)]
Idle = Annotated[float, Meta(ge=0, le=86_000)]
"""Below the longest time to live that a program may have."""

PolicyName = Literal["fcfs", "mlfq", "plas", "atlas", "gittins", "auto", "srpt", "round_robin"]


class ScenarioError(ValueError):
    """A scenario that makes no sense; the text names the key."""


class Scenario(Settings, frozen=True, kw_only=True):
    """One run of the simulator."""

    workload: str = "sharegpt"
    """A name in `workloads.WORKLOADS`, or the path of a trace."""
    programs: Count = 500
    rate_per_s: Annotated[float, Meta(gt=0, le=1e6)] | None = 1.0
    """Programs that arrive a second, as a Poisson process; None: all at once, at the start."""
    live_programs: Count | None = None
    """So many programs are there at any time, whatever the rate: when one is over the next arrives."""
    half: Literal["first", "second"] | None = None
    """Take only one half of the trace's programs: what is tuned on the one is judged on the other."""
    seed: Annotated[int, Meta(ge=0)] = 1
    max_calls: Count | None = None
    """Leave out programs of more calls; None: the workload's own bound."""
    max_context_tokens: Count | None = None
    """Leave out programs that grow longer; without it one that does not fit the engine is refused."""
    scale: Scale = Scale()
    """How much smaller the programs are than recorded."""
    interrupt_cap_s: Idle = 30.0
    interrupt_unknown_s: Idle = 1.0
    """What stands for an interrupt that the trace does not tell; before the first call there is none."""

    engines: Annotated[int, Meta(ge=1, le=4096)] = 1
    calibration: str = "a100-80gb-llama-3.1-8b"
    """A name in `engine/simulation/calibrations`, or the path of such a file."""
    overrides: dict[str, dict[str, int | float]] = msgspec.field(default_factory=dict)
    """Values in place of the calibration's, by table and key: `{"engine": {"slots": 128}}`."""
    prefix_cache: bool = True
    chunked_prefill: bool = True
    preemption: Literal["recompute", "swap"] = "recompute"
    swap: str = "bulk"
    """The way to copy blocks, a name in the calibration."""
    kv_tier_tokens: Annotated[int, Meta(ge=0)] = 0
    """Room in CPU memory for copies of cached blocks, each engine's (vLLM: `--kv-offloading-size`); 0: none."""
    preemptions_per_step_max: Count = 4
    policy_interval_steps: Count = 1
    scheduler_ms: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Time that scheduling adds to each step."""

    policy: PolicyName = "auto"
    gate: Literal["off", "fair", "plain"] | None = None
    """How programs are held when their caches do not fit together (`engine/policy/gate.py`, `plain_gate.py`); None: as
    it goes with the policy."""
    queues: Annotated[int, Meta(ge=1, le=64)] = 12
    first_quantum_ms: Annotated[float, Meta(ge=0.001, le=1e9)] = 100.0
    """Of the best queue; also the turn of `round_robin`."""
    fit_ladder: bool = True
    beta: Positive = 8.0
    balancer: LoadBalancerSettings = LoadBalancerSettings()

    measure_from: Share = 0.2
    measure_to: Share = 0.8
    """The programs between these shares of the arrivals are measured; the run ends when the last of them has."""
    limit_s: Positive = 1_000_000.0
    """Virtual time after which the run ends in any case."""
    keep_calls: bool = False
    """Whether the result also has a row for each call of the measured programs."""
    keep_loads: bool = False
    """Whether it also has every heartbeat of the engines."""
    keep_stays: bool = False
    """Whether it also has who was resident, and who was held, second by second."""


def checked(scenario: Scenario) -> Scenario:
    """Return `scenario` if its values make sense.

    Raises:
        ScenarioError: when one does not.
    """
    return from_tree(msgspec.to_builtins(scenario))


def from_tree(tree: Mapping[str, Any]) -> Scenario:
    """Return the scenario with these values; what is not given is the default.

    Raises:
        ScenarioError: for an unknown key and for a value that makes no sense.
    """
    try:
        scenario = msgspec.convert(tree, Scenario)
    except msgspec.ValidationError as error:
        raise ScenarioError(str(error)) from error
    if scenario.measure_from >= scenario.measure_to:
        raise ScenarioError("measure_from must be below measure_to")
    if scenario.rate_per_s and scenario.programs / scenario.rate_per_s > scenario.limit_s:
        raise ScenarioError("rate_per_s: so few arrivals take longer than limit_s")
    return scenario


def put(tree: dict[str, Any], setting: str) -> None:
    """Put one `key=value` into a tree of values; the key may be dotted, the value is TOML or plain text.

    Raises:
        ScenarioError: for text that is no setting.
    """
    key, equals, text = setting.partition("=")
    *tables, name = key.split(".")
    for table in tables:
        tree = tree.setdefault(table, {})
        if not isinstance(tree, dict):
            raise ScenarioError(f"{key}: {table} is no table")
    if not (equals and name):
        raise ScenarioError(f"expected key=value, got {setting!r}")
    try:
        tree[name] = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        tree[name] = text
