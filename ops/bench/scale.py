"""Many programs, engines and streams at once, through the whole pipeline (`make scale`).

So many programs are live all the time, on so many simulated engines, and calls come at a rate that does not depend on
how fast they are answered. Each is a stream of a few tokens half a second apart, as many as make the wanted number of
streams at that rate. What a call takes beyond its engine's own time is what the pipeline adds. In the end every call
has had one answer, every program that began has ended, and no id was given twice; else it ends with 1.
"""

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from watch import processor_s, resident_mib

from autellix.client import CallFailedError, Program
from autellix.client.bench import machine
from autellix.client.connection import shared
from autellix.client.plan import Plan
from autellix.client.queries import list_engines, list_programs
from autellix.client.stack import Stack

HERE = Path(__file__).parent.resolve()
STEP_MS = 500.0
PER_PROCESS = 16
MESSAGES = [{"role": "user", "content": "Go on."}]
BEHIND_MAX = 8000
"""Calls that are open at once; beyond that none is made, and counted as not made."""
SETTINGS = (
    "engine_worker.backend=simulated",
    f"engine_worker.simulated_step_ms={STEP_MS}",
    "process_table.ended_kept=4096",
    "log.level=warning",
)


@dataclass
class Found:
    """What was measured."""

    made: int = 0
    not_made: int = 0
    answered: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    added_ms: list[float] = field(default_factory=list)
    """By answered call: what it took beyond its tokens' time."""
    open_most: int = 0
    ids: Counter[str] = field(default_factory=Counter)
    programs: int = 0
    seconds: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    """By process: the share of one core that it took."""
    mib: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """Return what so large a share of the calls stays below."""
        ordered = sorted(self.added_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Load:
    """The programs and their calls."""

    def __init__(self, nats_url: str, found: Found, tokens: int) -> None:
        self._nats_url = nats_url
        self._found = found
        self._tokens = tokens
        self._open = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, programs: int, rate: float, seconds: float) -> None:
        """Begin the programs, make calls at a rate, and end them."""
        async with AsyncExitStack() as life:
            live = []
            for _ in range(programs):
                program = Program("scale", model="tiny", nats_url=self._nats_url)
                live.append(await life.enter_async_context(program))
            self._found.programs = len({program.id for program in live})
            await self._at_rate(live, rate, seconds)
            await asyncio.gather(*self._tasks)

    async def _at_rate(self, live: list[Program], rate: float, seconds: float) -> None:
        turns, began, due = itertools.cycle(live), time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            while due < passed * rate:
                due += 1
                if self._open >= BEHIND_MAX:
                    self._found.not_made += 1
                    continue
                task = asyncio.create_task(self._call(next(turns)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0.01)
        self._found.seconds = time.monotonic() - began

    async def _call(self, program: Program) -> None:
        found, began, words = self._found, time.monotonic(), 0
        found.made += 1
        self._open += 1
        found.open_most = max(found.open_most, self._open)
        try:
            body = {"model": "tiny", "messages": MESSAGES, "max_tokens": self._tokens, "stream": True}
            async with program.submitted(body) as call:
                found.ids[call.call_id] += 1
                async for chunk in call.chunks():
                    words += len(chunk.data)
        except CallFailedError as error:
            found.failed[error.error.code or str(error.status)] += 1
        else:
            found.answered += 1
            found.added_ms.append((time.monotonic() - began) * 1000 - self._tokens * STEP_MS)
            if words < self._tokens:
                found.wrong.append(f"an answer had {words} words")
        finally:
            self._open -= 1


@asynccontextmanager
async def engines(nats_url: str, count: int, log: Path) -> AsyncIterator[dict[str, int]]:
    """Run so many engines beside the stack's own, and return their processes."""
    processes: list[asyncio.subprocess.Process] = []
    with log.open("wb") as errors:
        try:
            for first in range(1, count, PER_PROCESS):
                own = min(PER_PROCESS, count - first)
                numbers = {"--first": first, "--count": own, "--step-ms": STEP_MS}
                command = [sys.executable, str(HERE / "many_engines.py"), "--nats-url", nats_url]
                command += [part for name, value in numbers.items() for part in (name, str(value))]
                ready = asyncio.subprocess.PIPE
                processes.append(await asyncio.create_subprocess_exec(*command, stdout=ready, stderr=errors))
            for process in processes:
                await asyncio.wait_for(process.stdout.readline(), 60)  # type: ignore[union-attr]
            yield {f"engines {number}": process.pid for number, process in enumerate(processes)}
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()


async def measured(programs: int, count: int, streams: int, rate: float, seconds: float) -> Found:
    """Measure at one rate."""
    found = Found()
    tokens = max(1, round(streams / rate / (STEP_MS / 1000)))
    with tempfile.TemporaryDirectory(prefix="autellix-") as folder:
        plan = Plan(model="tiny", port=0, overrides=SETTINGS, log_dir=Path(folder))
        async with Stack(plan) as stack, engines(stack.nats_url, count, Path(folder) / "engines") as more:
            pids = {child.name: child.pid for child in stack.children} | more
            await _rotation(stack, count)
            before = {name: processor_s(pid) for name, pid in pids.items()}
            began, own = time.monotonic(), time.process_time()
            await Load(stack.nats_url, found, tokens).run(programs, rate, seconds)
            took = time.monotonic() - began
            found.busy = {name: (processor_s(pid) - before[name]) / took for name, pid in pids.items()}
            found.busy["the client"] = (time.process_time() - own) / took
            found.mib = {name: resident_mib(pid) for name, pid in pids.items()}
            await _settled(stack, found)
    return found


async def _rotation(stack: Stack, count: int) -> None:
    """Wait until the balancer knows of every engine."""
    async with shared(stack.nats_url) as connection, asyncio.timeout(30):
        while len((await list_engines(connection)).engines) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def _settled(stack: Stack, found: Found) -> None:
    """Note what is not as it should be in the end."""
    await asyncio.sleep(2)
    async with shared(stack.nats_url) as connection:
        listed = (await list_programs(connection)).programs
        busy = sum(engine.calls for engine in (await list_engines(connection)).engines)
    ended = [each for each in listed if each.state == "ended"]
    calls = sum(each.calls for each in listed)
    if len(ended) != found.programs or len(listed) != found.programs:
        found.wrong.append(f"{found.programs} programs began, {len(listed)} are known, {len(ended)} ended")
    if calls != found.answered + sum(found.failed.values()):
        found.wrong.append(f"the process table counts {calls} calls")
    if busy:
        found.wrong.append(f"engines still have {busy} calls")
    if twice := [call_id for call_id, times in found.ids.items() if times > 1]:
        found.wrong.append(f"{len(twice)} ids were given twice")
    if lost := found.made - found.answered - sum(found.failed.values()):
        found.wrong.append(f"{lost} calls were lost")


def told(rate: float, found: Found) -> dict[str, object]:
    """Return what is written of a run."""
    return {
        "rate": rate,
        "achieved": found.answered / found.seconds,
        "made": found.made,
        "not_made": found.not_made,
        "answered": found.answered,
        "failed": found.failed,
        "programs": found.programs,
        "open_most": found.open_most,
        "seconds": found.seconds,
        "added_ms": {f"p{round(share * 100)}": found.percentile(share) for share in (0.5, 0.95, 0.99)},
        "busy": found.busy,
        "mib": found.mib,
        "wrong": found.wrong,
    }


def main() -> int:
    """Measure at each rate, print a row of it, and write all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=2048)
    parser.add_argument("--engines", type=int, default=64)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[100.0], help="calls a second, one run after the other"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of each run")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"{machine.described()}\n")  # noqa: T201
    print("| calls/s wanted | answered | streams at most | added, ms: p50 | p95 | p99 | failed | wrong |")  # noqa: T201
    print("|---:|---:|---:|---:|---:|---:|---:|---|")  # noqa: T201
    runs = []
    for rate in arguments.rates:
        found = asyncio.run(
            measured(arguments.programs, arguments.engines, arguments.streams, rate, arguments.minutes * 60)
        )
        runs.append(told(rate, found))
        added = " | ".join(f"{found.percentile(share):.0f}" for share in (0.5, 0.95, 0.99))
        rates = f"| {rate:.0f} | {found.answered / found.seconds:.0f} | {found.open_most}"
        print(f"{rates} | {added} | {sum(found.failed.values())} | {'; '.join(found.wrong[:3])} |", flush=True)  # noqa: T201
    busy = ", ".join(f"{name} {share:.2f}" for name, share in found.busy.items())
    print(f"\nCores taken in the last run: {busy}")  # noqa: T201
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine.described(), "runs": runs}, indent=1))
    return 1 if any(run["wrong"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
