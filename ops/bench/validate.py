"""Holds the simulator against what `autellix bench compare` measured: the same programs, loads, sizes and policies.

For each load and seed of a suite's results the ratio of a system's latency to the reference's is simulated, with the
step times that `make calibrate` measured here, and printed beside the measured one. Ratios are compared, not times: the
calibration knows neither the HTTP server nor who else uses the machine. Run it by
`.venv/bin/python ops/bench/validate.py ops/bench/results/bench/long`.
"""

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from autellix.client.bench.measures import summarize
from autellix.client.bench.results import Result
from autellix.schemas.traces.scale import Scale
from autellix.services.simulator.scenario import Scenario
from autellix.services.simulator.world import simulate

REFERENCE = "vllm-opt"
SIMULATED: dict[str, dict[str, Any]] = {
    "vllm": {"policy": "fcfs", "gate": "off", "prefix_cache": False, "chunked_prefill": False},
    "vllm-opt": {"policy": "fcfs", "gate": "off"},
    "plain-gate": {"policy": "fcfs", "gate": "plain"},
    "mlfq": {"policy": "mlfq", "gate": "off"},
    "plas": {"policy": "plas", "gate": "off"},
    "atlas": {"policy": "atlas", "gate": "off"},
    "gittins": {"policy": "gittins", "gate": "off"},
    "auto": {"policy": "auto"},
}
"""The others have no counterpart in the simulator."""
MEASURED: dict[str, Any] = {"measure_from": 0.1, "measure_to": 0.9}
"""As `summarize` does."""


class Case(NamedTuple):
    """One run, measured and to be simulated."""

    workload: str
    level: str
    seed: int
    system: str
    ms_per_token: float
    scenario: Scenario


def cases(folder: Path) -> Iterator[Case]:
    """Yield the runs of a suite that have a counterpart in the simulator."""
    for file in sorted(folder.glob("*.json")):
        workload, level, seed, system = file.stem.split("-", 3)
        if system not in SIMULATED or level == "capacity":
            continue
        result = msgspec.json.decode(file.read_bytes(), type=Result)
        latency = summarize(result.run).token_latency_ms
        if latency:
            yield Case(workload, level, int(seed), system, latency.mean, scenario_of(result, system))


def scenario_of(result: Result, system: str) -> Scenario:
    """Return what was measured as the simulator takes it."""
    load, shape = result.run.load, result.shape
    scale = load.scale
    engine: dict[str, int | float] = {
        "slots": shape.slots,
        "kv_tokens": shape.kv_tokens,
        "block_size": 32,
        "max_num_batched_tokens": shape.step_tokens,
        "max_model_len": shape.max_model_len,
    }
    return Scenario(
        workload=load.workload,
        programs=load.programs,
        rate_per_s=load.rate_per_s,
        live_programs=load.live_programs,
        half=load.half,
        seed=load.seed,
        max_calls=load.max_calls,
        max_context_tokens=load.max_context_tokens,
        scale=Scale(prompts=scale.prompts, answers=scale.answers, interrupts=scale.interrupts),
        interrupt_cap_s=scale.interrupt_cap_s,
        interrupt_unknown_s=0.0,
        calibration="cpu-tiny",
        overrides={"engine": engine},
        **MEASURED,
        **SIMULATED[system],
    )


def simulated_ms(scenario: Scenario) -> float:
    """Return the mean program-level token latency that the simulator finds."""
    latency = simulate(scenario).summary.ms_per_token
    return latency.mean if latency else float("inf")


class Row(NamedTuple):
    """A system at a load: its latency over the reference's, means over the seeds."""

    workload: str
    level: str
    system: str
    measured: float
    simulated: float

    @property
    def off(self) -> float:
        """Return by which share the simulated ratio is off."""
        return self.simulated / self.measured - 1


def rows(found: Iterable[tuple[Case, float]]) -> list[Row]:
    """Return the ratios of all runs of which the reference was measured, too."""
    both = {(case.workload, case.level, case.seed, case.system): (case.ms_per_token, ms) for case, ms in found}
    ratios: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for (workload, level, seed, system), (measured, simulated) in both.items():
        reference = both.get((workload, level, seed, REFERENCE))
        if reference and system != REFERENCE:
            ratios[workload, level, system].append((measured / reference[0], simulated / reference[1]))
    return [Row(*key, *map(fmean, zip(*values, strict=True))) for key, values in ratios.items()]


def table(found: list[Row]) -> Table:
    """Return a row for each system and load."""
    shown = Table(title=f"latency over that of {REFERENCE}")
    for heading in ("workload", "load", "system", "measured", "simulated", "off by"):
        shown.add_column(heading, justify="right" if heading in ("measured", "simulated", "off by") else "left")
    for row in found:
        shown.add_row(
            row.workload, row.level, row.system, f"{row.measured:.2f}", f"{row.simulated:.2f}", f"{row.off:+.0%}"
        )
    return shown


def main() -> None:
    """Simulate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="results of a suite")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    measured = list(cases(arguments.folder))
    with Pool(os.cpu_count()) as pool:
        found = rows(zip(measured, pool.map(simulated_ms, [case.scenario for case in measured], 1), strict=True))
    Console(width=None if os.isatty(1) else 100).print(table(found))
    if arguments.json:
        arguments.json.write_text(json.dumps([row._asdict() for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
