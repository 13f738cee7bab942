"""Kills, freezes and restarts the processes of a running Autellix under load, and counts what is lost (`make chaos`).

Agents make calls, one after the other and some at once, plain and streamed; what fails they try again, as real ones do.
Meanwhile, at moments that a seed decides, a process is killed without warning and started again a moment later, as
systemd would, an engine is frozen for a while, or the bus is out of a process's reach. One of the engines is a real
vLLM, whose worker dies, or the process of vLLM under it. After each fault the agents make no new calls for a moment,
and everything is asked whether it agrees (`chaos_checks.py`): every call had one end, no program was lost or is stuck,
nothing is in flight, and the process table says what the events say.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from chaos_checks import agree
from chaos_report import Report, counting, shown
from fleet import NATS, Fleet, is_gone
from proxy import CUTS
from rich.console import Console
from watch import resident_mib

from autellix.client import CallFailedError, Patience, Program, UnreachableError
from autellix.client.call import SILENCE
from autellix.client.plan import Plan
from autellix.client.stack import free_port
from autellix.schemas.ids import ProgramId

SERVICES = ("session-manager", "process-table", "load-balancer", "durable-calls", "metrics", "gateway")
ENGINES = ("engine-0", "engine-1")
KINDS = (*SERVICES, *ENGINES, NATS, "freeze", *CUTS)
REAL = "engine-2"
"""A real vLLM engine, beside simulated ones."""
CORE = "EngineCore"
"""The process of vLLM in which that engine runs: its worker's child."""
REAL_KINDS = (*KINDS, REAL, CORE)
FREEZE_S = 8.0
"""Longer than others wait for an engine's word."""
CUT_S = (2.0, 12.0)
"""How long a way to the bus is cut."""
PATIENCE = Patience(first_frame_s=15.0, silence_s=90.0)
"""A call of which nothing is heard for so long is lost."""
TOKENS = 40
CALLS = 6
TRIES = 40
MESSAGES = [{"role": "user", "content": "Go on."}]


class Agents:
    """The load."""

    def __init__(self, nats_url: str, report: Report, chance: random.Random) -> None:
        self._nats_url = nats_url
        self._report = report
        self._chance = chance
        self.over = asyncio.Event()
        self._go_on = asyncio.Event()
        self._go_on.set()
        self._open = 0
        self._idle = asyncio.Event()
        self.programs: dict[ProgramId, int] = {}
        """By program: how many of its calls were answered."""

    @asynccontextmanager
    async def quiet(self) -> AsyncIterator[None]:
        """Have all calls end, and no new ones made for as long as the context lasts."""
        self._go_on.clear()
        while self._open:
            self._idle.clear()
            await self._idle.wait()
        yield
        self._go_on.set()

    async def live(self) -> None:
        """Run programs one after the other until it is over."""
        while not self.over.is_set():
            program = Program("chaos", model="tiny", nats_url=self._nats_url, patience=PATIENCE)
            try:
                await self._until_done(program.__aenter__)
            except CallFailedError:
                continue
            self._report.programs += 1
            self.programs[program.id] = 0
            try:
                await self._run(program)
            except CallFailedError as error:
                self._report.given_up += 1
                self._report.wrong.append(f"program {program.id} gave up: {error}")
            await self._until_done(partial(program.__aexit__, None, None, None))

    async def _run(self, program: Program) -> None:
        for number in range(CALLS):
            streams = [self._chance.random() < 0.5 for _ in range(self._chance.choice((1, 1, 3)))]
            await asyncio.gather(*(self._call(program, stream=stream) for stream in streams))
            await asyncio.sleep(self._chance.random() * 0.2 * (number % 2))

    async def _call(self, program: Program, *, stream: bool) -> None:
        begun = time.monotonic()

        async def ask() -> None:
            self._report.calls += 1
            tokens = await _streamed(program) if stream else await _whole(program)
            self._report.answered += 1
            self._report.cut += tokens != TOKENS

        await self._until_done(ask)
        self.programs[program.id] += 1
        self._report.longest_outage_s = max(self._report.longest_outage_s, time.monotonic() - begun)

    async def _until_done(self, work: Any) -> None:
        """Do something that may fail while a part of the pipeline is away, until it does not."""
        await self._go_on.wait()
        self._open += 1
        try:
            await self._tried(work)
        finally:
            self._open -= 1
            self._idle.set()

    async def _tried(self, work: Any) -> None:
        for number in range(TRIES):
            try:
                await work()
            except (CallFailedError, UnreachableError) as error:
                code = error.error.code or str(error.status) if isinstance(error, CallFailedError) else "unreachable"
                self._report.failed[code] += 1
                self._report.lost += code == SILENCE
                if number == TRIES - 1:
                    raise
                await asyncio.sleep(0.5)
            else:
                return


async def _whole(program: Program) -> int:
    answer = await program.chat(MESSAGES, max_tokens=TOKENS, ignore_eos=True)
    return int(answer.response["usage"]["completion_tokens"])


async def _streamed(program: Program) -> int:
    stream = program.stream(MESSAGES, max_tokens=TOKENS, ignore_eos=True)
    async for _ in stream:
        pass
    return int(stream.answer.response["usage"]["completion_tokens"])


async def disturb(
    fleet: Fleet, agents: Agents, report: Report, faults: int, chance: random.Random, say: Console, kinds: Sequence[str]
) -> None:
    """Let so many faults happen, each kind once before any comes again, and look at everything after each."""
    left: list[str] = []
    for number in range(faults):
        left = left or chance.sample(kinds, len(kinds))
        kind = left.pop()
        say.print(f"{number + 1} of {faults}: {kind}; {report.answered} calls answered, {report.failed.total()} failed")
        report.faults[kind] += 1
        if kind == "freeze":
            engine = chance.choice(ENGINES)
            fleet.freeze(engine, signal.SIGSTOP)
            await asyncio.sleep(FREEZE_S)
            fleet.freeze(engine, signal.SIGCONT)
        elif kind in CUTS:
            name = chance.choice((*SERVICES, *ENGINES))
            say.print(f"  of {name}")
            way = fleet.ways[name]
            way.cut(kind)
            await asyncio.sleep(chance.uniform(*CUT_S))
            way.heal()
        elif kind in (REAL, CORE):
            await kill_real(fleet, report, kind)
        else:
            await fleet.kill(kind)
            await asyncio.sleep(chance.random() * 2)
            await fleet.start(kind)
        await asyncio.sleep(1 + chance.random() * 2)
        async with agents.quiet():
            await agree(agents.programs, fleet.nats_url, report, after=kind)
        report.memory.append({name: resident_mib(pid) for name, pid in fleet.pids.items()})


async def kill_real(fleet: Fleet, report: Report, kind: str) -> None:
    """Kill the real engine's worker, or the process of vLLM under it: either takes the other along."""
    children = fleet.children(REAL)
    if not children:
        report.wrong.append(f"{REAL} had no process of vLLM")
    if kind == CORE:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        await fleet.ended(REAL)
    else:
        await fleet.kill(REAL)
    report.wrong += [f"process {pid} of {REAL} outlived it" for pid in children if not await is_gone(pid, 10)]
    await fleet.start(REAL)


async def run(plan: Plan, *, faults: int, agents: int, seed: int, say: Console, kinds: Sequence[str] = ()) -> Report:
    """Start everything, disturb it, and return what happened."""
    report, chance = Report(), random.Random(seed)  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory(prefix="autellix-chaos-") as folder:
        real = plan.engines > len(ENGINES)
        fleet = Fleet(plan, Path(folder), {REAL: ("engine_worker.backend=vllm",)} if real else None)
        async with fleet.up(), counting(fleet.nats_url, report):
            load = Agents(fleet.nats_url, report, chance)
            living = [asyncio.create_task(load.live()) for _ in range(agents)]
            await disturb(fleet, load, report, faults, chance, say, kinds or (REAL_KINDS if real else KINDS))
            load.over.set()
            await asyncio.gather(*living)
            await agree(load.programs, fleet.nats_url, report, after="all")
    return report


def main() -> int:
    """Run it and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--agents", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulated", action="store_true", help="without the real engine")
    parser.add_argument("--json", type=Path, help="write the report")
    arguments = parser.parse_args()
    report = asyncio.run(
        run(
            simulated(real=not arguments.simulated),
            faults=arguments.faults,
            agents=arguments.agents,
            seed=arguments.seed,
            say=Console(highlight=False),
        )
    )
    text = json.dumps(shown(report, arguments.seed), indent=2)
    sys.stdout.write(text + "\n")
    if arguments.json:
        arguments.json.write_text(text + "\n")
    return int(not report.good)


def simulated(*, real: bool = False) -> Plan:
    """Return a stack of two simulated engines, and a real one if it is wanted."""
    settings = (
        "engine_worker.backend=simulated",
        "engine_worker.simulated_step_ms=10",
        "process_table.ended_kept=100000",  # all of them are asked for in the end
    )
    return Plan(model="tiny", engines=2 + real, port=0, nats_port=free_port(), overrides=settings)


if __name__ == "__main__":
    sys.exit(main())
