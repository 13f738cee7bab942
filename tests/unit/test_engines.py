"""What the worker's settings mean to vLLM and to the simulated engine."""

from itertools import pairwise

from autellix.engine.simulated import SimulatedExecutor
from autellix.services.config import EngineWorkerSettings
from autellix.services.engine_worker.engines import GRAMMARS, executor_for, vllm_arguments


def test_arguments() -> None:
    """The settings become vLLM's arguments, and the user's own come last, so that they win."""
    settings = EngineWorkerSettings(model="tiny", slots=3, max_model_len=512, vllm_args=["--max-num-seqs", "9"])
    arguments = vllm_arguments(settings, "/models/tiny")
    pairs = list(pairwise(arguments))

    assert ("--model", "/models/tiny") in pairs
    assert ("--served-model-name", "tiny") in pairs
    assert ("--max-model-len", "512") in pairs
    assert ("--structured-outputs-config", GRAMMARS) in pairs
    assert pairs.index(("--max-num-seqs", "3")) < pairs.index(("--max-num-seqs", "9"))
    assert arguments[-2:] == ["--max-num-seqs", "9"]


def test_no_length() -> None:
    """Without a length of our own the model's is left to vLLM."""
    assert "--max-model-len" not in vllm_arguments(EngineWorkerSettings(), "x")


async def test_simulated_backend() -> None:
    """The simulated backend serves the model that the settings name."""
    settings = EngineWorkerSettings(backend="simulated", model="any", policy="plas", slots=7)
    async with executor_for(settings) as executor:
        assert isinstance(executor, SimulatedExecutor)
        assert (executor.info.models, executor.info.policy, executor.info.slots) == (("any",), "plas", 7)
