"""Measures what the gate does on real vLLM: programs that do not fit together, one system after another.

The tiny model runs in this process. Prompts, answers and interrupts of the traces are made smaller, so that a run takes
minutes. Each system serves the same programs, so many at a time; the next comes when one is over. Systems take turns,
round after round, so that a slow hour of the machine hits all of them. Run it by `make bench-gate`.
"""

import argparse
import json
import os
import random
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from replay import Arriving, Replay
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tiny_model import tiny_config

from autellix.client.bench.machine import described
from autellix.engine.vllm_adapter.notices import NoticeSender
from autellix.engine.vllm_adapter.options import SchedulerOptions, to_config
from autellix.engine.vllm_adapter.reports import ReportReceiver
from autellix.schemas.traces.scale import Scale
from autellix.schemas.traces.workloads import arrivals
from autellix.services.simulator.scenario import Scenario

BLOCK = 32
"""The smallest on a CPU."""
SLOTS = 64
OURS = "autellix.engine.vllm_adapter.scheduler.ProgramScheduler"
SYSTEMS: dict[str, dict[str, str] | None] = {
    "stock": None,
    "atlas": {"policy": "atlas", "gate": "off"},
    "plain gate": {"policy": "fcfs", "gate": "plain"},
    "auto": {"policy": "auto", "gate": "fair"},
}
"""The first is vLLM's own scheduler; the plain gate is in front of its order."""


class Load(NamedTuple):
    """What is replayed, and on how much room."""

    workload: str
    live: tuple[int, ...]
    """Programs at a time: from little pressure to much."""
    kv_tokens: int
    scale: Scale
    interrupt_cap_s: float
    programs_each: int
    """So many for each that is there at a time."""


LOADS = {
    load.workload: load
    for load in (
        Load("sharegpt", (20, 80), 6_000, Scale(prompts=8, answers=16, interrupts=0.1), 2.0, 2),
        Load("bfcl", (10, 30), 10_000, Scale(prompts=8, answers=8, interrupts=0.1), 2.0, 2),
        Load("lats", (3, 8), 4_000, Scale(prompts=8, answers=16, interrupts=0.1), 2.0, 1),
        Load("mixed", (6, 16), 6_000, Scale(prompts=8, answers=16, interrupts=0.1), 2.0, 2),
        Load("claude_code", (3, 12), 10_000, Scale(prompts=32, answers=32, interrupts=0.01), 0.2, 1),
    )
}


class Outcome(NamedTuple):
    """What a run came to."""

    working_set: float
    """Contexts of the live programs over the KV cache."""
    hit_rate: float
    tokens_per_s: float
    wait_s: float
    wait_p99_s: float
    ms_per_token: float
    ms_per_token_p99: float
    response_s: float


class Engine:
    """vLLM's engine core with the tiny model, scarce room, and one of the systems' schedulers."""

    def __init__(self, system: str, kv_tokens: int, folder: Path) -> None:
        self.reports: ReportReceiver | None = None
        self.notices: NoticeSender | None = None
        shape = ["--block-size", str(BLOCK), "--num-gpu-blocks-override", str(kv_tokens // BLOCK)]
        shape += ["--max-num-seqs", str(SLOTS), "--max-num-batched-tokens", "512"]
        shape += ["--max-model-len", str(longest(kv_tokens))]
        chosen = SYSTEMS[system]
        if chosen:
            self.reports = ReportReceiver(folder / "reports")
            notices = str(folder / "notices")
            sockets = {"report_socket": str(self.reports.path), "notice_socket": notices}
            options = msgspec.convert(sockets | chosen, SchedulerOptions)
            shape += ["--scheduler-cls", OURS, "--additional-config", json.dumps(to_config(options))]
        config = tiny_config(*shape)
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor import Executor

        self.core = EngineCore(config, Executor.get_class(config), log_stats=False)
        if chosen:
            self.notices = NoticeSender(notices)

    def close(self) -> None:
        """Let the engine go."""
        self.core.shutdown()
        for end in (self.reports, self.notices):
            if end:
                end.close()


def longest(kv_tokens: int) -> int:
    """Return how long a context may be: half of the cache, and what the model can do."""
    return min(8192, kv_tokens // 2)


def programs_of(load: Load, live: int, seed: int) -> list[Arriving]:
    """Return the programs of a run: of the half of the trace that nothing was tuned on."""
    scenario = Scenario(
        workload=load.workload,
        programs=live * load.programs_each,
        seed=seed,
        half="second",
        max_context_tokens=round(0.9 * longest(load.kv_tokens)),
        scale=load.scale,
    )
    return [Arriving(arrival.trace, arrival.program) for arrival in arrivals(scenario)]


def run(system: str, load: Load, live: int, seed: int, progress: Progress) -> Outcome:
    """Serve a load by a system."""
    arriving = programs_of(load, live, seed)
    task = progress.add_task(f"{load.workload}, {live} at a time, {system}", total=len(arriving))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = Engine(system, load.kv_tokens, folder)
        stack.callback(engine.close)
        replay = Replay(
            engine.core,
            arriving,
            live=live,
            block_tokens=BLOCK,
            interrupt_cap_s=load.interrupt_cap_s,
            seed=seed,
            reports=engine.reports,
            notices=engine.notices,
        )
        replay.run(lambda: progress.advance(task))
    progress.remove_task(task)
    return outcome_of(replay, load.kv_tokens // BLOCK)


def outcome_of(replay: Replay, kv_blocks: int) -> Outcome:
    """Return what a run came to."""
    waits = np.array([row.waited_s for row in replay.rows])
    latencies = np.array([1000 * row.response_s / row.output_tokens for row in replay.rows])
    return Outcome(
        working_set=replay.working_set_blocks / kv_blocks,
        hit_rate=sum(row.cached_tokens for row in replay.rows) / sum(row.prompt_tokens for row in replay.rows),
        tokens_per_s=sum(row.output_tokens for row in replay.rows) / replay.took_s,
        wait_s=float(waits.mean()),
        wait_p99_s=float(np.quantile(waits, 0.99)),
        ms_per_token=float(latencies.mean()),
        ms_per_token_p99=float(np.quantile(latencies, 0.99)),
        response_s=float(np.mean([row.response_s for row in replay.rows])),
    )


def table(load: Load, outcomes: dict[tuple[int, str], list[Outcome]]) -> Table:
    """Return a row for each pressure and system: means over the rounds, and how far they spread."""
    title = f"{load.workload}: {load.kv_tokens:,} tokens of KV cache; lengths of prompts 1/{load.scale.prompts:g}"
    shown = Table(title=title)
    for heading in (
        "at a time",
        "system",
        "set / KV",
        "hit rate",
        "tokens/s",
        "wait, s",
        "P99",
        "ms/token",
        "P99",
        "response, s",
    ):
        shown.add_column(heading, justify="left" if heading == "system" else "right")
    for (live, system), found in outcomes.items():
        shown.add_row(f"{live}", system, *(spread_of(values) for values in zip(*found, strict=True)))
    return shown


def spread_of(values: Sequence[float]) -> str:
    """Return a mean, and half the distance of the least and the greatest."""
    mean = f"{np.mean(values):.3g}"
    return f"{mean} ±{(max(values) - min(values)) / 2:.2g}" if len(values) > 1 else mean


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=LOADS, action="append", help="only this one; may be repeated")
    parser.add_argument("--system", choices=SYSTEMS, action="append", help="only this one; may be repeated")
    parser.add_argument("--rounds", type=int, default=2, help="each with a seed of its own (%(default)s)")
    parser.add_argument("--live", type=int, action="append", help="programs at a time, instead of the usual steps")
    parser.add_argument("--programs", type=int, help="of a run, for each that is there at a time")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    arguments = parser.parse_args()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    os.environ["OMP_NUM_THREADS"] = "1"  # two that wait for each other take ten times as long when one is disturbed
    console = Console(width=None if os.isatty(1) else 120)
    numbers: dict[str, Any] = {"machine": described(), "loads": {}}
    with Progress(console=console, transient=True) as progress:  # a process's first run is slower than all others
        run("auto", LOADS["sharegpt"]._replace(programs_each=2), 10, 0, progress)
    for name in arguments.workload or LOADS:
        load = LOADS[name]._replace(programs_each=arguments.programs or LOADS[name].programs_each)
        outcomes: dict[tuple[int, str], list[Outcome]] = {}
        with Progress(console=console, transient=True) as progress:
            for seed in range(1, 1 + arguments.rounds):
                for live in arguments.live or load.live:
                    systems = list(arguments.system or SYSTEMS)
                    random.Random(seed).shuffle(systems)  # noqa: S311 - who goes first
                    for system in systems:
                        outcomes.setdefault((live, system), []).append(run(system, load, live, seed, progress))
        ordered = {key: outcomes[key] for live in arguments.live or load.live for key in outcomes if key[0] == live}
        console.print(table(load, ordered))
        numbers["loads"][load.workload] = [
            {"live": live, "system": system, "rounds": [each._asdict() for each in found]}
            for (live, system), found in ordered.items()
        ]
    console.print(numbers["machine"])
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
