"""The benchmark's systems and suites: alike in all that is not compared, and fit to be run."""

from pathlib import Path

import pytest

from autellix.client.bench import floors
from autellix.client.bench.suite import read_suite
from autellix.client.bench.systems import Shape, System, filled, read_systems
from autellix.services.config import load

BENCH = Path(__file__).parents[2] / "ops" / "bench"
SYSTEMS = read_systems(BENCH / "systems.toml")
SUITES = sorted((BENCH / "suites").glob("*.toml"))
SHAPE = Shape(slots=3, kv_tokens=1600, step_tokens=640, max_model_len=320)


def command_of(system: System) -> str:
    """Return how a system is started, in one line."""
    values = SHAPE.values() | {"port": 1, "logs": "logs", "here": "here", "python": "python"}
    return " ".join(filled(part, values).replace('"', "") for part in (*system.command, *system.arguments))


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_have_engines_of_one_size(name: str) -> None:
    """Whatever is compared, it has the same slots, KV cache, step, longest sequence and threads, and tells its hits."""
    system = SYSTEMS[name]
    command = command_of(system).replace(",", "")

    sizes = ("--block-size 32", "--num-gpu-blocks-override 50", "--max-num-batched-tokens 640")
    assert [] == [option for option in (*sizes, "--enable-prompt-tokens-details") if option not in command]
    assert "--max-num-seqs 3" in command or "engine_worker.slots=3" in command
    assert "--max-model-len 320" in command or "engine_worker.max_model_len=320" in command
    assert SYSTEMS["auto"].environment == system.environment
    assert "1" == system.environment["OMP_NUM_THREADS"]


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.command[0] == "autellix"])
def test_our_systems_have_settings_that_exist(name: str) -> None:
    """Every setting that a system of ours gives is one, and gets to the engine."""
    words = command_of(SYSTEMS[name])
    settings = [word.partition("=") for word in words.split() if word.startswith("engine_worker.")]

    found = load(None, [f"{key}={value}" for key, _, value in settings if "vllm_args" not in key]).engine_worker
    assert (3, 320) == (found.slots, found.max_model_len)


@pytest.mark.parametrize("file", SUITES, ids=lambda file: file.stem)
def test_suites_can_be_run(file: Path) -> None:
    """Each names systems, workloads and floors that exist, and sizes that every system can run with."""
    suite = read_suite(file).suite
    floors.check(suite)

    shapes = [workload.shape for workload in suite.workloads]
    assert [] == [shape for shape in shapes if shape.step_tokens < shape.max_model_len]
    assert [] == [shape for shape in shapes if shape.kv_tokens <= shape.max_model_len]
