"""How `ops/bench/validate.py` makes simulations of measured runs, and ratios of both."""

from pathlib import Path

import msgspec
import pytest
from validate import Case, cases, rows, simulated_ms

from autellix.client.bench.load import Load, Scale
from autellix.client.bench.measures import ProgramRow, Run
from autellix.client.bench.results import Result
from autellix.client.bench.systems import Shape, System
from autellix.services.simulator.scenario import Scenario

LOAD = Load(
    workload="sharegpt", programs=10, live_programs=5, max_context_tokens=2048, scale=Scale(prompts=8, answers=8)
)
SHAPE = Shape(slots=3, kv_tokens=8192, max_model_len=2048)


def program(response_s: float) -> ProgramRow:
    """Return a program of ten tokens."""
    return ProgramRow(
        name="p",
        trace="sharegpt",
        calls=1,
        arrived_s=0.0,
        makespan_s=response_s,
        response_s=response_s,
        waited_s=0.0,
        prompt_tokens=10,
        cached_tokens=0,
        output_tokens=10,
    )


def measured(folder: Path, system: str, response_s: float, level: str = "0.4") -> None:
    """Write the result of a run as `bench compare` does."""
    rows = [program(response_s)] * 3
    run = Run(load=LOAD, system=system, started_at="2026-11-30", took_s=1.0, idle=None, rows=rows)
    result = Result(system=System(url="http://127.0.0.1:1"), shape=SHAPE, run=run)
    (folder / f"sharegpt-{level}-1-{system}.json").write_bytes(msgspec.json.encode(result))


def test_a_run_is_simulated_as_it_was_measured(tmp_path: Path) -> None:
    """Programs, sizes of the engine and policy are those of the run; what has no counterpart is left out."""
    measured(tmp_path, "auto", 2.0)
    measured(tmp_path, "router-las", 2.0)
    measured(tmp_path, "vllm-opt", 2.0, level="capacity")
    (case,) = cases(tmp_path)
    scenario = case.scenario

    assert ("sharegpt", "0.4", 1, "auto", 200.0) == case[:5]
    assert (10, 5, 8.0, "auto") == (scenario.programs, scenario.live_programs, scenario.scale.prompts, scenario.policy)
    assert {"slots": 3, "kv_tokens": 8192, "block_size": 32} == {
        key: scenario.overrides["engine"][key] for key in ("slots", "kv_tokens", "block_size")
    }
    assert 0 < simulated_ms(scenario) < 10_000


def test_ratios_are_over_the_reference_of_the_same_seed() -> None:
    """The mean over the seeds of each run's ratio; a run without its reference has none."""
    times = {
        ("vllm-opt", 1): (10.0, 1.0),
        ("auto", 1): (5.0, 0.6),
        ("vllm-opt", 2): (20.0, 2.0),
        ("auto", 2): (14.0, 1.2),
    }
    found = [
        (Case("w", "0.4", seed, system, ms, Scenario()), simulated) for (system, seed), (ms, simulated) in times.items()
    ]
    (row,) = rows([*found, (Case("w", "0.8", 1, "auto", 1.0, Scenario()), 1.0)])

    assert ("w", "0.4", "auto") == row[:3]
    assert pytest.approx((0.6, 0.6)) == row[3:]
    assert pytest.approx(0.0) == row.off
