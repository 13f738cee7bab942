"""One real vLLM engine in this process, stepped by hand, so that a test sees and decides what each step holds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autellix.engine.executor import Notice, Turn
from autellix.engine.vllm_adapter import models
from autellix.engine.vllm_adapter.notices import NoticeSender
from autellix.engine.vllm_adapter.options import SchedulerOptions, to_config
from autellix.engine.vllm_adapter.reports import Busy, Ended, ReportReceiver

BLOCK = 32
BLOCKS = 64
BUDGET = 256
SLOTS = 2


class Bench:
    """An engine with two slots, 2,048 tokens of KV cache and 256 tokens a step, and what its scheduler reports."""

    def __init__(self, model: str, receiver: ReportReceiver, **arguments: Any) -> None:
        from vllm import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        self.receiver = receiver
        self.options = SchedulerOptions(
            policy="fcfs",
            report_socket=str(receiver.path),
            notice_socket=f"{receiver.path}-notices",
            preemptions_per_step_max=2,
        )
        shape = {"max_num_seqs": SLOTS, "max_num_batched_tokens": BUDGET, "max_model_len": 1024, "block_size": BLOCK}
        named = {"dtype": "float32", "enforce_eager": True, "num_gpu_blocks_override": BLOCKS, **shape, **arguments}
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=model,
                load_format="dummy",
                scheduler_cls="autellix.engine.vllm_adapter.schedulers.program_scheduler",
                additional_config=to_config(self.options),
                disable_log_stats=True,
                **named,
            )
        )
        self.scheduler = self.engine.engine_core.engine_core.scheduler
        self.notices = NoticeSender(f"{receiver.path}-notices")
        self.turns: list[Turn] = []
        self.ended: dict[str, Ended] = {}
        self.texts: dict[str, dict[int, str]] = {}

    def use(self, policy: str, **options: Any) -> None:
        """Go by another policy, and by these options beside the usual ones, from now on; the engine is idle."""
        assert not self.scheduler.requests
        self.scheduler.reset_prefix_cache()
        self.scheduler._notices.receive()  # what is left from before is about nobody here
        self.scheduler._follow(msgspec.structs.replace(self.options, policy=policy, **options))
        self.turns, self.ended, self.texts = [], {}, {}

    def tell(self, notice: Notice) -> None:
        """Tell the scheduler something, as the worker does."""
        self.notices.tell(notice)

    def add(
        self,
        name: str,
        prompt: str,
        *,
        program: str = "",
        service_ms: float = 0.0,
        kind: str = "",
        priority: int = 0,
        **params: Any,
    ) -> None:
        """Submit a call of a program, its own if none is named, that has attained so much; each letter is a token."""
        from vllm import SamplingParams

        facts = {"autellix_call_id": name, "autellix_program_id": program or name, "autellix_service_ms": service_ms}
        facts |= {"autellix_critical_path_ms": service_ms, "autellix_kind": kind}
        known: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 8, **params}
        sampling = SamplingParams(**known, extra_args=facts)
        tokens = {"prompt_token_ids": [ord(letter) for letter in prompt]}
        self.engine.add_request(name, tokens, sampling, priority=priority)

    def step(self, count: int = 1) -> None:
        """Let the engine take steps, and take in what comes of them."""
        for _ in range(count):
            for output in self.engine.step():
                for completion in output.outputs:
                    self.texts.setdefault(output.request_id, {})[completion.index] = completion.text
            for report in self.receiver.receive():
                if isinstance(report, Ended):
                    self.ended[report.call_id] = report
                elif not isinstance(report, Busy):
                    self.turns.append(report)

    def finish(self) -> None:
        """Take steps until nothing is left to do."""
        for _ in range(5000):
            if not self.engine.has_unfinished_requests():
                break
            self.step()
        assert not self.scheduler.requests
        assert self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == BLOCKS - 1  # one is vLLM's own


MakeBench = Callable[..., Bench]


@pytest.fixture(scope="session")
def make_bench() -> Iterator[MakeBench]:
    """Return what starts an engine in this process, given vLLM's arguments beside those of `Bench`."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        for name, value in {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "TORCHDYNAMO_DISABLE": "1",
        }.items():
            patch.setenv(name, value)
        made: list[Bench] = []

        def make(**arguments: Any) -> Bench:
            receiver = ReportReceiver(Path(folder) / f"reports-{len(made)}")
            made.append(Bench(models.resolve("tiny"), receiver, **arguments))
            return made[-1]

        yield make
        for bench in made:
            bench.scheduler.shutdown()
            bench.receiver.close()
            bench.notices.close()


@pytest.fixture(scope="session")
def bench(make_bench: MakeBench) -> Bench:
    """Return the engine that most tests share. On a CPU vLLM schedules a step when the one before it is done."""
    return make_bench()
