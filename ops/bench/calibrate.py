"""Measures how long vLLM's steps take with the tiny model on this machine, for the simulated engine.

The engine core runs in this process and is stepped through a grid of batches: prefills alone, decodes alone, and both
in one step. The grid is gone through several times, and a batch takes what its median step took in its best pass, so
that a busy minute of the machine does not count. The fit is

    step = a + b * prefill tokens + c * decoding calls + d * context tokens

with no coefficient below zero, by least squares of the relative errors: a short step counts as much as a long one.
Run it by `make calibrate`.
"""

import argparse
import random
import textwrap
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from step_fit import Point, Work, fit, predicted, r_squared
from tiny_model import tiny_config

from autellix.client.bench.machine import described
from autellix.engine.simulation.timing import Calibration, EngineLimits, StepTiming

TARGET = Path(__file__).parents[2] / "engine" / "simulation" / "calibrations" / "cpu-tiny.toml"
REPEATS = 8
VOCABULARY = range(300, 900)
"""Tokens of the tiny model that are not special."""


class Batch(NamedTuple):
    """What one step of the grid holds."""

    decoding: int = 0
    context: int = 0
    """Tokens of each decoding call's prompt."""
    prefill: int = 0
    """Tokens of the one prompt that is computed beside them."""


GRID = (
    *(Batch(prefill=tokens) for tokens in (16, 64, 128, 256, 512, 1024, 2048)),
    *(Batch(1, context) for context in (64, 512, 2048)),
    *(Batch(16, context) for context in (64, 512, 2048)),
    *(Batch(64, context) for context in (64, 512)),
    *(Batch(256, context) for context in (64, 256)),
    *(Batch(decoding, 64, prefill) for decoding in (16, 64) for prefill in (64, 256, 1024)),
    Batch(192, 64, 256),
)


class Engine:
    """vLLM's engine core with the tiny model, in this process."""

    def __init__(self) -> None:
        config = tiny_config()
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor import Executor

        self.config = config
        self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        self._random = random.Random(0)  # noqa: S311 - prompts, no secrets
        self._scheduled: Any = None
        self._remember_what_is_scheduled()
        self._requests = 0

    def _remember_what_is_scheduled(self) -> None:
        schedule = self._core.scheduler.schedule

        def remembered(*args: Any) -> Any:
            self._scheduled = schedule(*args)
            return self._scheduled

        self._core.scheduler.schedule = remembered

    def add(self, prompt_tokens: int, output_tokens: int) -> Any:
        """Add a request with a prompt that no other has."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        self._requests += 1
        prompt = self._random.choices(VOCABULARY, k=prompt_tokens)
        params = SamplingParams(max_tokens=output_tokens, ignore_eos=True)
        hasher = self._core.request_block_hasher
        request = Request(f"request-{self._requests}", prompt, params, None, block_hasher=hasher)
        self._core.add_request(request)
        return request

    def step(self) -> tuple[Work, float]:
        """Run a step and return what it computed and how long it took; milliseconds."""
        began = time.perf_counter()
        self._core.step_fn()
        took_ms = (time.perf_counter() - began) * 1000
        return work_of(self._scheduled), took_ms

    def abort(self, requests: Sequence[Any]) -> None:
        """Abort requests, and step once so that the model runner forgets them."""
        self._core.abort_requests([request.request_id for request in requests])
        self._core.step_fn()

    def measure(self, batch: Batch) -> list[tuple[Work, float]]:
        """Run several steps of a batch, once all its decoding calls decode."""
        decoding = [self.add(batch.context, self.config.model_config.max_model_len) for _ in range(batch.decoding)]
        while any(request.num_output_tokens == 0 for request in decoding):
            self.step()
        steps = []
        for _ in range(1 + REPEATS):
            if batch.prefill:
                self.add(batch.prefill, 1)
            steps.append(self.step())
        self.abort(decoding)
        return steps[1:]  # the first of a shape sets buffers up


def work_of(scheduled: Any) -> Work:
    """Return what a step computes, from vLLM's `SchedulerOutput`; a call with one token in it decodes."""
    cached = scheduled.scheduled_cached_reqs
    decoding = sum(scheduled.num_scheduled_tokens[request_id] == 1 for request_id in cached.req_ids)
    context = sum(new.num_computed_tokens for new in scheduled.scheduled_new_reqs) + sum(cached.num_computed_tokens)
    return Work(scheduled.total_num_scheduled_tokens - decoding, decoding, context)


def measure(passes: int) -> tuple[Any, list[Point]]:
    """Measure the grid and return the engine's configuration and a point a batch."""
    engine = Engine()
    rounds = [[engine.measure(batch) for batch in GRID] for _ in range(passes)]
    return engine.config, [point_of(found) for found in zip(*rounds, strict=True)]


def point_of(passes: Sequence[Sequence[tuple[Work, float]]]) -> Point:
    """Return what the steps of one batch come to."""
    works = [work for steps in passes for work, _ in steps]
    return Point(Work(*np.mean(works, axis=0)), np.array([[took_ms for _, took_ms in steps] for steps in passes]))


def table(points: Sequence[Point], coefficients: Any) -> Table:
    """Return a row a point: what it computes, how long that takes, and how far off the fit is."""
    shown = Table(title="milliseconds a step; of all steps, the 10th and the 90th of 100")
    for heading in ("prefill tokens", "decoding calls", "context tokens", "ms", "all steps", "fit", "off"):
        shown.add_column(heading, justify="right")
    for measured, said in zip(points, predicted(points, coefficients), strict=True):
        low, high = np.quantile(measured.steps_ms, (0.1, 0.9))
        times = (f"{measured.ms:.2f}", f"{low:.2f} to {high:.2f}", f"{said:.2f}", f"{said / measured.ms - 1:+.0%}")
        shown.add_row(*(f"{count:,.0f}" for count in measured.work), *times)
    return shown


def quality(points: Sequence[Point], coefficients: Any) -> str:
    """Return how good the fit is, in words."""
    off = predicted(points, coefficients) / np.array([point.ms for point in points]) - 1
    spread = np.median([np.quantile(point.steps_ms, 0.9) / point.ms - 1 for point in points])
    worst = int(np.argmax(np.abs(off)))
    prefill, decoding, context = points[worst].work
    passes, repeats = points[0].steps_ms.shape
    return (
        f"{len(points)} batches, {repeats} steps of each in each of {passes} passes; the median step of the best pass, "
        f"which nine of ten steps exceed by {spread:.0%} at most. "
        f"R2 of the fit {r_squared(points, coefficients):.2f}; off by {np.median(np.abs(off)):.0%} in the median, "
        f"and at most by {off[worst]:+.0%}, for {prefill:.0f} tokens of prefill in one prompt beside {decoding:.0f} "
        f"decoding calls with {context:.0f} tokens of context."
    )


def calibration(config: Any, coefficients: Any, source: str) -> Calibration:
    """Return the calibration that the fit and vLLM's configuration make."""
    fixed, prefill, decoding, context = (float(f"{value:.4g}") for value in coefficients)
    cache, scheduler = config.cache_config, config.scheduler_config
    return Calibration(
        name=TARGET.stem,
        source=source,
        step=StepTiming(fixed_ms=fixed, prefill_token_ms=prefill, decoding_call_ms=decoding, context_token_ms=context),
        engine=EngineLimits(
            slots=scheduler.max_num_seqs,
            kv_tokens=cache.num_gpu_blocks * cache.block_size,
            block_size=cache.block_size,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_model_len=config.model_config.max_model_len,
        ),
    )


def as_toml(measured: Calibration) -> str:
    """Return the text of a calibration's file."""
    lines = [f'name = "{measured.name}"', f'source = """\n{textwrap.fill(measured.source, 110)}\n"""']
    for table_name, values in (("step", measured.step), ("engine", measured.engine)):
        lines += ["", f"[{table_name}]"]
        lines += [f"{key} = {value:_}" for key, value in msgspec.structs.asdict(values).items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print the points with the fit beside them, and write the calibration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=3, help="how often to go through the grid, about 80 s each")
    parser.add_argument("--to", type=Path, default=TARGET, help="the file to write")
    args = parser.parse_args()
    config, points = measure(args.passes)
    coefficients = fit(points)
    what = f"MEASURED by `make calibrate` on {datetime.now(UTC):%Y-%m-%d}: the tiny model, {config.model_config.dtype}"
    source = f"{what}, on {described()}. {quality(points, coefficients)}"
    args.to.write_text(as_toml(calibration(config, coefficients, source)))
    console = Console()
    console.print(table(points, coefficients))
    console.print(f"{source}\n{args.to} written", highlight=False)


if __name__ == "__main__":
    main()
