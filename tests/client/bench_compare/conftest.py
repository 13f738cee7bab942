"""Runs whose numbers are known, suites that ask for them, and a file of systems."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autellix.client.bench import machine
from autellix.client.bench.comparison import Outcome, outcome
from autellix.client.bench.load import Load
from autellix.client.bench.measures import ProgramRow, Run
from autellix.client.bench.schedule import Job, level_name
from autellix.client.bench.suite import Suite

TOKENS = 10

Latencies = Mapping[tuple[float, str, int], float]
"""Milliseconds a token by level, system and seed."""


def suite_of(**fields: Any) -> Suite:
    """Return a suite of two systems, `ref` and `new`, with one workload at the loads 0.5 and 1."""
    workload = {"name": "bfcl", "shares": [0.5, 1.0], "scale": {"prompts": 8.0}}
    defaults = {"systems": ["ref", "new"], "reference": "ref", "workloads": [workload], "programs": 2}
    return msgspec.convert({**defaults, **fields}, Suite)


def run_of(load: Load, latency_ms: float, programs: int = 2) -> Run:
    """Return a run whose programs arrived each second and all had this latency."""
    row = ProgramRow(
        name="p",
        trace="bfcl",
        calls=1,
        arrived_s=0.0,
        makespan_s=latency_ms * TOKENS / 1000,
        response_s=latency_ms * TOKENS / 1000,
        waited_s=0.0,
        prompt_tokens=100,
        cached_tokens=25,
        output_tokens=TOKENS,
    )
    rows = [msgspec.structs.replace(row, arrived_s=float(number)) for number in range(programs)]
    took_s = max(row.ended_s for row in rows)
    return Run(
        load=load,
        system="s",
        started_at="2026-01-01T00:00:00+00:00",
        machine=machine.described(),
        pace_ms=1.0,
        took_s=took_s,
        idle=None,
        rows=rows,
    )


def outcome_of(suite: Suite, latencies: Latencies, capacity_per_s: float | None = 4.0) -> Outcome:
    """Return what the first workload of a suite came to, had its runs these latencies."""
    workload = suite.workloads[0]
    runs = {}
    for (level, system, seed), latency_ms in latencies.items():
        load = suite.load(workload, level, seed, capacity_per_s)
        runs[Job(workload.name, level_name(level), seed, system, load)] = run_of(load, latency_ms)
    return outcome(workload, runs, capacity_per_s)


@pytest.fixture
def systems_file(tmp_path: Path) -> Path:
    """Return a file of two systems that are there already."""
    file = tmp_path / "systems.toml"
    file.write_text('[systems.ref]\nurl = "http://ref"\n[systems.new]\nlike = "ref"\nkind = "gateway"\n')
    return file


@pytest.fixture
def suite_file(systems_file: Path) -> Path:
    """Return a file of a suite of these two."""
    file = systems_file.with_name("small.toml")
    file.write_text(
        'systems_file = "systems.toml"\nresults = "results"\nsystems = ["ref", "new"]\nreference = "ref"\n'
        '[[workloads]]\nname = "bfcl"\nshares = [0.5, 1.0]\n'
    )
    return file
