"""What the figures compare: systems, workloads, and the arrival rates that say something about them.

Rates are chosen by where *this* engine saturates, from light load to well past the point where first come, first served
falls behind; the paper's rates mean nothing here, since the engine is an assumed one.
"""

from typing import Any, NamedTuple

from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.scenario import Scenario

PROGRAMS_MIN = 10
PLAIN: dict[str, Any] = {"prefix_cache": False, "chunked_prefill": False}
"""vLLM 0.6.1 as it comes."""
BULK_SWAP: dict[str, Any] = {"preemption": "swap", "swap": "bulk"}
GIVE_UP_AFTER = 20
"""A run ends unfinished after so many times as long as programs arrive."""

VLLM, VLLM_OPT, MLFQ, AUTELLIX, SRPT, ROUND_ROBIN = "vllm", "vllm-opt", "mlfq", "autellix", "srpt", "round robin"


class Workload(NamedTuple):
    """A workload as the paper runs it."""

    name: str
    policy: str
    """Autellix's: PLAS where programs make one call at a time, else ATLAS."""
    rates: tuple[float, ...]
    """Programs a second and engine."""
    plain_rates: tuple[float, ...]
    """The same for an engine without prefix cache."""
    slots: int = 64

    @property
    def label(self) -> str:
        """Return what to call it: its name, and the slots of the engine."""
        return f"{self.name}/{self.slots}"

    def rates_of(self, system: str) -> tuple[float, ...]:
        """Return the rates at which a system is looked at."""
        return self.plain_rates if system == VLLM else self.rates


PLAIN_SHAREGPT = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2)
SHAREGPT = Workload("sharegpt", "plas", (0.6, 0.8, 1.0, 1.1, 1.2, 1.4, 1.6, 2.0, 2.4), PLAIN_SHAREGPT)
SHAREGPT_256 = Workload("sharegpt", "plas", (1.0, 1.2, 1.4, 1.8, 2.2), PLAIN_SHAREGPT, slots=256)
BFCL = Workload("bfcl", "plas", (0.6, 0.8, 1.0, 1.1, 1.2, 1.3), (0.05, 0.1, 0.15, 0.2))
LATS = Workload("lats", "atlas", (0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.2), (0.01, 0.02, 0.03, 0.04, 0.06))
MIXED = Workload("mixed", "atlas", (0.14, 0.22, 0.3, 0.36, 0.45, 0.6), (0.03, 0.05, 0.07, 0.09, 0.12))


def changes(system: str, workload: Workload) -> dict[str, Any]:
    """Return what makes a scenario one of this system."""
    return {
        VLLM: {"policy": "fcfs", **PLAIN},
        VLLM_OPT: {"policy": "fcfs"},
        MLFQ: {"policy": "mlfq"},
        AUTELLIX: {"policy": workload.policy},
        SRPT: {"policy": "srpt"},
        ROUND_ROBIN: {"policy": "round_robin"},
    }[system]


def online(workload: Workload, system: str, rate: float, seed: int, effort: Effort, **other: Any) -> Scenario:
    """Return a run in which programs arrive over time.

    Args:
        workload: What arrives.
        system: What serves it.
        rate: Programs a second, over all engines.
        seed: Chooses programs and arrivals.
        effort: How long they arrive.
        other: Any other values of the scenario.
    """
    values = {
        "programs": max(round(rate * effort.arrivals_s), PROGRAMS_MIN),
        "rate_per_s": rate,
        "limit_s": GIVE_UP_AFTER * effort.arrivals_s,
    }
    return _scenario(workload, system, seed, values | other)


def offline(workload: Workload, system: str, programs: int, seed: int, **other: Any) -> Scenario:
    """Return a run in which all programs arrive at once and all are measured."""
    values = {"programs": programs, "rate_per_s": None, "measure_from": 0.0, "measure_to": 1.0}
    return _scenario(workload, system, seed, values | other)


def _scenario(workload: Workload, system: str, seed: int, values: dict[str, Any]) -> Scenario:
    slots = {"overrides": {"engine": {"slots": workload.slots}}}
    return Scenario(workload=workload.name, seed=seed, **{**slots, **changes(system, workload), **values})
