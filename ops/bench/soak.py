"""Keeps a stack at full load for half an hour and looks at its memory (`make soak`).

Agents make calls over the bus and over HTTP, plain and streamed, one after the other and at once; some hang up in the
middle of an answer, some leave without ending their programs, some calls are durable. So everything that is remembered
comes, goes, and expires. Bounds are set so low that they are reached well before the last third of the run, by which
the run is judged: a process that still grows then, by more than 30 MiB an hour, loses memory. Sixty bytes a call would
be enough for that.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from watch import Sample, growth_mib_h, last_third, resident_mib, size_mib

from autellix.client import CallFailedError, Program
from autellix.client.bench import machine
from autellix.client.connection import shared
from autellix.client.plan import Plan
from autellix.client.queries import list_engines, list_programs
from autellix.client.stack import Stack

RESULTS = Path(__file__).parent.resolve() / "results"
EVERY_S = 5.0
GROWTH_MAX_MIB_H = 30.0
JUDGED_S = 900.0
"""A shorter run is not judged: Python's and Go's collectors have not settled."""
SETTINGS = (
    "engine_worker.backend=simulated",
    "engine_worker.simulated_step_ms=5",
    f"process_table.events_max_bytes={48 * 2**20}",
    "process_table.ended_kept=200",
    "durable_calls.results_kept_s=120",
    "durable_calls.tries_s=120",
)
MESSAGES = [{"role": "user", "content": "Go on. " * 20}]
TTL_S = 20.0
"""How long programs that nobody ended stay."""


@dataclass
class Report:
    """What happened."""

    counts: Counter[str] = field(default_factory=Counter)
    memory: dict[str, list[Sample]] = field(default_factory=dict)
    """By process; `JetStream's files` is what these take on the disk."""
    wrong: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Note the processes that grow; the files have a bound of their own."""
        for name, samples in self.memory.items():
            if not name.endswith("files") and samples[-1].at_s - samples[0].at_s >= JUDGED_S:
                growth = growth_mib_h(last_third(samples))
                if growth > GROWTH_MAX_MIB_H:
                    self.wrong.append(f"{name} grows by {growth:.0f} MiB an hour")


class Agents:
    """The load."""

    def __init__(self, stack: Stack, report: Report, seed: int) -> None:
        self._stack = stack
        self._counts = report.counts
        self._chance = random.Random(seed)  # noqa: S311 - a load
        self.over = asyncio.Event()
        self._http = httpx.AsyncClient(base_url=stack.http_url, timeout=60, limits=httpx.Limits(max_connections=200))

    async def live(self, count: int) -> None:
        """Run so many agents until it is over: a third of them over HTTP."""
        kinds = (self._on_the_bus, self._on_the_bus, self._over_http)
        async with self._http:
            await asyncio.gather(*(self._go_on(kinds[number % 3]) for number in range(count)))

    async def _go_on(self, agent: Any) -> None:
        while not self.over.is_set():
            try:
                await agent()
                self._counts["programs"] += 1
            except (CallFailedError, httpx.HTTPError) as error:
                self._counts[f"failed: {type(error).__name__} {error}"[:120]] += 1
                await asyncio.sleep(0.5)

    async def _on_the_bus(self) -> None:
        async with Program("soak", model="tiny", nats_url=self._stack.nats_url) as program:
            for _ in range(self._chance.randint(1, 6)):
                at_once = self._chance.choice((1, 1, 1, 4))
                await asyncio.gather(*(self._call(program) for _ in range(at_once)))

    async def _call(self, program: Program) -> None:
        tokens = self._chance.randint(2, 40)
        if self._chance.random() < 0.1:
            with suppress(TimeoutError):  # it gives up in the middle
                async with asyncio.timeout(self._chance.uniform(0.005, 0.1)):
                    await program.chat(MESSAGES, max_tokens=tokens)
            self._counts["given up"] += 1
            return
        durable = f"soak-{self._chance.getrandbits(64):x}" if self._chance.random() < 0.02 else None
        await program.chat(MESSAGES, max_tokens=tokens, durable_id=durable)
        self._counts["durable calls" if durable else "calls"] += 1

    async def _over_http(self) -> None:
        """Run one program, which nobody ends, or only one call of no program."""
        name = f"soak-{self._chance.getrandbits(64):x}"
        headers = {"X-Session-ID": name} if self._chance.random() < 0.7 else {}
        for _ in range(self._chance.randint(1, 4)):
            body = {"model": "tiny", "messages": MESSAGES, "max_tokens": self._chance.randint(2, 40), "stream": True}
            async with self._http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
                answer.raise_for_status()
                lines = 0
                async for _line in answer.aiter_lines():
                    lines += 1
                    if lines == 3 and self._chance.random() < 0.1:
                        self._counts["hung up"] += 1
                        break
            self._counts["calls over HTTP"] += 1


async def watch(stack: Stack, report: Report, over: asyncio.Event, seconds: float, people: Console) -> None:
    """Look at every process until the time is over."""
    began = time.monotonic()
    while (at_s := time.monotonic() - began) < seconds:
        for child in stack.children:
            report.memory.setdefault(child.name, []).append(Sample(at_s, resident_mib(child.pid)))
        for folder in {Path(path) for path in stack_folders(stack)}:
            report.memory.setdefault("JetStream's files", []).append(Sample(at_s, size_mib(folder)))
        now = ", ".join(f"{name} {samples[-1].mib:.0f}" for name, samples in report.memory.items())
        people.print(f"{at_s:.0f} s, {sum(report.counts.values())} done; MiB: {now}", soft_wrap=True)
        await asyncio.sleep(EVERY_S)
    over.set()


def stack_folders(stack: Stack) -> list[str]:
    """Return where the NATS server keeps its files: beside its configuration, as its command line says."""
    (server,) = (child for child in stack.children if child.name == "nats-server")
    command = Path(f"/proc/{server.pid}/cmdline").read_bytes().decode().split("\0")
    return [str(Path(command[command.index("-c") + 1]).parent / "jetstream")]


async def all_quiet(stack: Stack, report: Report) -> None:
    """Wait until every program is over, and note what is not."""
    async with shared(stack.nats_url) as connection:
        with suppress(TimeoutError):
            async with asyncio.timeout(TTL_S * 3):
                while any(each.state == "running" for each in (await list_programs(connection)).programs):  # noqa: ASYNC110
                    await asyncio.sleep(1)
        left = [each for each in (await list_programs(connection)).programs if each.state == "running"]
        busy = [each.engine_id for each in (await list_engines(connection)).engines if each.calls]
    if left:
        report.wrong.append(f"{len(left)} programs have not ended")
    if busy:
        report.wrong.append(f"engines still have calls: {busy}")


async def soak(seconds: float, agents: int, seed: int, people: Console) -> Report:
    """Run it."""
    report = Report()
    settings = (*SETTINGS, f"session_manager.ttl_s={TTL_S}")
    with tempfile.TemporaryDirectory(prefix="autellix-") as logs:
        async with Stack(Plan(model="tiny", engines=2, port=0, overrides=settings, log_dir=Path(logs))) as stack:
            load = Agents(stack, report, seed)
            await asyncio.gather(load.live(agents), watch(stack, report, load.over, seconds, people))
            await all_quiet(stack, report)
    report.judge()
    return report


def draw(report: Report, path: Path) -> None:
    """Draw memory over time, each process by itself."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for name, samples in report.memory.items():
        style = "--" if name.endswith("files") else "-"
        axes.plot([each.at_s / 60 for each in samples], [each.mib for each in samples], style, label=name)
    axes.set(xlabel="minutes at full load", ylabel="MiB", ylim=(0, None), title="Memory of every process")
    axes.legend(ncols=2, fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def table(report: Report) -> str:
    """Return the report as a table."""
    lines = ["| process | MiB at first | at two thirds | at the end | growth of the last third, MiB/h |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, samples in report.memory.items():
        third = last_third(samples)
        mib = " | ".join(f"{each.mib:.0f}" for each in (samples[0], third[0], samples[-1]))
        lines.append(f"| {name} | {mib} | {growth_mib_h(third):+.1f} |")
    done = ", ".join(f"{count:,} {name}" for name, count in sorted(report.counts.items()))
    return "\n".join([*lines, "", done, "", *(report.wrong or ["Nothing is wrong."])])


def main() -> int:
    """Run, print, write, and end with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--agents", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder for soak.json and soak.png")
    arguments = parser.parse_args()
    people = Console(stderr=True, highlight=False)
    report = asyncio.run(soak(arguments.minutes * 60, arguments.agents, arguments.seed, people))
    print(f"{machine.described()}\n\n{table(report)}")  # noqa: T201
    told = {"machine": machine.described(), "minutes": arguments.minutes, "agents": arguments.agents}
    told |= {"counts": report.counts, "memory": report.memory, "wrong": report.wrong}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "soak.json").write_text(json.dumps(told))
    draw(report, arguments.out / "soak.png")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
