"""Measures what our scheduler adds to a step of vLLM, beside the one that vLLM would choose, in the same run.

Both are the real classes, built from the tiny model's configuration, with a full batch of 256 calls; only the model is
left out: every step is answered at once with a token a call. One call ends and one arrives every four steps, and the
engine worker's socket takes the reports. A step is `schedule()` and `update_from_output()`.

The two take turns of four steps, so every turn has an end and an arrival, and a turn of one is compared with the turn
of the other beside it (`added`). That difference of two large numbers is noisy; `our code` is less so: it is what is
left of our steps without vLLM's own `schedule()` and `update_from_output()`, less what is left of vLLM's steps so: the
stopwatch. What vLLM calls back (a request freed, preempted) is in `added` alone. All times are of the processor, not of
the clock on the wall: what else runs on the machine counts little.

Our scheduler's own clock is moved on by the step time of the calibration `cpu-tiny`, so that quanta end and calls
starve as often as on the real engine. Run it by `make bench-scheduler`.
"""

import argparse
import gc
import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from tiny_model import KV_CACHE_GIB, SLOTS, tiny_config
from vllm import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from autellix.engine.executor import EngineCall, Preempted, ProgramOver
from autellix.engine.simulation.calibration import load_calibration
from autellix.engine.vllm_adapter import scheduler as ours
from autellix.engine.vllm_adapter.notices import NoticeSender
from autellix.engine.vllm_adapter.options import SchedulerOptions, to_config, to_xargs
from autellix.engine.vllm_adapter.reports import Ended, ReportReceiver
from autellix.engine.vllm_adapter.start import SCHEDULER
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

GATES = {"fcfs": "off", "mlfq": "off", "plas": "off", "atlas": "off", "auto": "fair"}
"""By policy: the default one has the gate in front."""
WAITING = (0, 256, 4096)
PROMPT_TOKENS = 128
TURN_STEPS = 4
OUTPUT_TOKENS = SLOTS * TURN_STEPS
"""A call that begins now takes as long as all that run to end one after the other."""
FILL_STEPS = 32
"""More than it takes to compute the prompts of a full batch."""
LONG_AGO_MS = 3.6e7
"""Ten hours: a program of the last queue."""


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    policy: str
    waiting: int
    mixed: bool = False
    """Whether waiting calls may be better than running ones; else their programs are in the last queue."""


class Steps(NamedTuple):
    """What some steps took; microseconds of processor time."""

    whole_us: Any
    outside_us: Any
    """Outside vLLM's own methods."""


class Stopwatch:
    """Adds up the time spent in vLLM's own methods, whichever scheduler calls them."""

    def __init__(self) -> None:
        self.total_s = 0.0

    def watch(self, scheduler: Any, method: str) -> None:
        """Time a method of vLLM's class from now on."""
        run = getattr(scheduler, method)

        @wraps(run)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return run(*args, **kwargs)
            finally:
                self.total_s += time.thread_time() - began

        setattr(scheduler, method, timed)


class World:
    """A scheduler with calls, stepped without a model."""

    def __init__(self, config: Any, case: Case, reports: ReportReceiver) -> None:
        self.displaced = 0
        self.notices: NoticeSender | None = None
        """Where to tell that a program is over."""
        self.scheduler = build(config)
        self._case = case
        self._reports = reports
        self._now_ms = 0.0
        self._numbers = count()
        self._random = random.Random(0)  # noqa: S311 - a mix of calls, no secrets
        hash_function = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hash_function)
        self._hasher = get_request_block_hasher(config.cache_config.block_size, hash_function)
        self._set_clock()
        self._fill()

    def _set_clock(self) -> None:
        """Let our scheduler see this world's time."""
        ours.now_ms = lambda: self._now_ms

    def _fill(self) -> None:
        """Let 256 calls run, each with as much left as makes one end every four steps, and the others wait."""
        for _ in range(SLOTS):
            self._add(self._some_service())
        for _ in range(FILL_STEPS):
            self._run_step()
        for number, request in enumerate(self.scheduler.requests.values(), start=1):
            request.max_tokens = request.num_output_tokens + number * TURN_STEPS
        for _ in range(self._case.waiting):
            self._arrive()

    def _some_service(self) -> float:
        """Return what a program may have attained: 10 ms to 1000 s, each order of magnitude alike; milliseconds."""
        return float(10 ** self._random.uniform(1, 6))

    def _arrive(self) -> None:
        self._add(self._some_service() if self._case.mixed else LONG_AGO_MS)

    def _add(self, service_ms: float) -> None:
        name = f"call-{next(self._numbers)}"
        facts = ProgramFacts(service_ms=service_ms, critical_path_ms=service_ms)
        call = EngineCall(
            CallId(name), ProgramId(name), ThreadId("main"), "/v1/completions", b"{}", stream=False, program=facts
        )
        params = SamplingParams(max_tokens=OUTPUT_TOKENS, ignore_eos=True, extra_args=to_xargs(call))
        prompt = self._random.choices(range(300, 900), k=PROMPT_TOKENS)
        self.scheduler.add_request(Request(name, prompt, params, None, block_hasher=self._hasher))

    def turn(self, step_ms: float, vllm: Stopwatch) -> Steps:
        """Run an arrival and four steps, each `step_ms` long by our clock."""
        self._set_clock()
        self._arrive()
        whole, inner = np.zeros(TURN_STEPS), np.zeros(TURN_STEPS)
        for number in range(TURN_STEPS):
            before = vllm.total_s
            whole[number] = self._run_step(step_ms)
            inner[number] = (vllm.total_s - before) * 1e6
            self._read_reports()
        return Steps(whole, whole - inner)

    def _read_reports(self) -> None:
        """Do as the worker does: each program here is over with its call."""
        for report in self._reports.receive():
            self.displaced += isinstance(report, Preempted)
            if self.notices and isinstance(report, Ended):
                self.notices.tell(ProgramOver(program_id=ProgramId(report.call_id)))

    def _run_step(self, step_ms: float = 0.0) -> float:
        began = time.thread_time()
        scheduled = self.scheduler.schedule()
        chosen = time.thread_time()
        output = answer(self.scheduler, scheduled)
        self._now_ms += step_ms
        answered = time.thread_time()
        self.scheduler.update_from_output(scheduled, output)
        return (time.thread_time() - answered + chosen - began) * 1e6


@dataclass(frozen=True)
class Measured:
    """The turns of one case, a row each, in both schedulers."""

    case: Case
    stock: Steps
    ours: Steps
    displaced_per_step: float

    @property
    def added_us(self) -> float:
        """What a step takes more than vLLM's, on average over a turn: in the median pair of turns."""
        return float(np.median(self.ours.whole_us.mean(axis=1) - self.stock.whole_us.mean(axis=1)))

    def our_code_us(self, percent: int) -> float:
        """Return what our code takes in a step that so many percent do not exceed."""
        return float(np.percentile(self.ours.outside_us, percent) - np.median(self.stock.outside_us))


def stock_config() -> Any:
    """Return the configuration of an engine with vLLM's scheduler."""
    return tiny_config()


def our_config(policy: str, reports: ReportReceiver, notices: Path) -> Any:
    """Return the configuration of an engine with ours."""
    sockets = str(reports.path), str(notices)
    options = to_config(
        SchedulerOptions(policy=policy, gate=GATES[policy], report_socket=sockets[0], notice_socket=sockets[1])
    )
    return tiny_config("--scheduler-cls", SCHEDULER, "--additional-config", json.dumps(options))


def build(config: Any) -> Any:
    """Return a scheduler as vLLM's engine core builds it."""
    cache, model = config.cache_config, config.model_config
    heads = model.get_num_kv_heads(config.parallel_config)
    spec = FullAttentionSpec(
        block_size=cache.block_size, num_kv_heads=heads, head_size=model.get_head_size(), dtype=model.dtype
    )
    layers = model.get_num_layers(config.parallel_config)
    cache.num_gpu_blocks = KV_CACHE_GIB * 2**30 // (spec.page_size_bytes * layers)
    groups = [KVCacheGroupSpec([f"layer-{layer}" for layer in range(layers)], spec)]
    return config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(cache.num_gpu_blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=cache.block_size,
        log_stats=True,
    )


def answer(scheduler: Any, scheduled: Any) -> ModelRunnerOutput:
    """Return what the model runner would: a token for every call whose prompt is computed."""
    names = list(scheduled.num_scheduled_tokens)
    tokens = [[] if scheduler.requests[name].is_prefill_chunk else [300] for name in names]
    return ModelRunnerOutput(names, {name: index for index, name in enumerate(names)}, tokens)


def measure(case: Case, turns: int, step_ms: float, vllm: Stopwatch) -> Measured:
    """Let vLLM's scheduler and ours take turns with the same calls."""
    with tempfile.TemporaryDirectory() as folder:
        reports = ReportReceiver(Path(folder) / "reports")
        stock = World(stock_config(), case, reports)
        notices = Path(folder) / "notices"
        our = World(our_config(case.policy, reports, notices), case, reports)
        our.notices = NoticeSender(str(notices))
        gc.collect()
        gc.freeze()  # as the engine core does once it is up
        pairs = [(stock.turn(step_ms, vllm), our.turn(step_ms, vllm)) for _ in range(turns)]
        gc.unfreeze()
        our.notices.close()
        reports.close()
    stocks, ours = ([np.array(rows) for rows in zip(*side, strict=True)] for side in zip(*pairs, strict=True))
    return Measured(case, Steps(*stocks), Steps(*ours), our.displaced / (turns * TURN_STEPS))


HEADINGS = ("policy", "waiting", "stock", "ours", "added", "our code", "p99", "of the step", "displaced")


def table(measured: Sequence[Measured], step_ms: float) -> Table:
    """Return a line a case, in Markdown."""
    shown = Table(*HEADINGS, box=box.MARKDOWN)
    for found in measured:
        waiting = f"{found.case.waiting:,}{', mixed' if found.case.mixed else ''}"
        medians = (f"{np.median(steps.whole_us):.0f}" for steps in (found.stock, found.ours))
        our_code = (f"{found.our_code_us(percent):.0f}" for percent in (50, 99))
        share = f"{found.our_code_us(50) / 1000 / step_ms:.2%}"
        added, displaced = f"{found.added_us:+.0f}", f"{found.displaced_per_step:.2f}"
        shown.add_row(found.case.policy, waiting, *medians, added, *our_code, share, displaced)
    return shown


def main() -> None:
    """Print a table, microseconds a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=50, help=f"of {TURN_STEPS} steps, in each scheduler")
    parser.add_argument("--policies", nargs="+", default=list(GATES), choices=GATES)
    args = parser.parse_args()
    step = load_calibration("cpu-tiny").step
    step_ms = step.step_ms(prefill_tokens=0, decoding_calls=SLOTS, context_tokens=0)
    cases = [Case(policy, waiting) for policy, waiting in product(args.policies, WAITING)]
    cases += [Case(policy, WAITING[-1], mixed=True) for policy in args.policies if policy in ("plas", "atlas", "auto")]
    vllm = Stopwatch()
    for method in ("schedule", "update_from_output"):
        vllm.watch(Scheduler, method)
    measured = [measure(case, args.turns, step_ms, vllm) for case in cases]
    console = Console(width=120)
    console.print(f"{SLOTS} calls run; a step of the tiny model takes {step_ms:.1f} ms; microseconds a step")
    console.print(table(measured, step_ms))


if __name__ == "__main__":
    main()
