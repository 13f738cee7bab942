"""Measures what the pipeline adds to a call: client to engine and back, against calling the engine object directly.

The engine is the simulated one and answers at once, so what is left is the way there and back: four hops over a real
nats-server between real processes. Calls are sent at a fixed rate, whether or not earlier ones are back, by the client
library; each is a plain chat call of 8 tokens. Run it by `make bench-overhead`.

A call takes five trips over the bus, so the same run measures a round trip (two) between two processes as well. How
long a trip takes is the machine's; how many there are, and what happens between them, is ours.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable

import msgspec
import nats

from autellix.client import Program
from autellix.client.plan import Plan
from autellix.client.stack import Stack
from autellix.engine.executor import EngineCall, EngineInfo
from autellix.engine.simulated import SimulatedExecutor
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

MODEL = "simulated"
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
TOKENS = 8
WARM_UP_CALLS = 100


async def at_rate(rate: float, calls: int, call: Callable[[int], Awaitable[object]]) -> list[float]:
    """Make `calls` calls, `rate` a second, and return how long each took; milliseconds."""

    async def timed(number: int) -> float:
        began = time.perf_counter()
        await call(number)
        return (time.perf_counter() - began) * 1000

    start, tasks = time.perf_counter(), []
    for number in range(calls):
        await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(timed(number)))
    return list(await asyncio.gather(*tasks))


async def direct(rate: float, calls: int) -> list[float]:
    """Measure the engine object by itself."""
    info = EngineInfo(models=(MODEL,), policy="atlas", slots=1, kv_tokens=0, max_model_len=4096)
    executor = SimulatedExecutor(info)
    body = msgspec.json.encode({"model": MODEL, "messages": MESSAGES, "max_tokens": TOKENS})

    async def call(number: int) -> None:
        call_id = CallId(str(number))
        engine_call = EngineCall(
            call_id,
            ProgramId("bench"),
            ThreadId("main"),
            "/v1/chat/completions",
            body,
            stream=False,
            program=ProgramFacts(),
        )
        async for _ in executor.run(engine_call):
            pass
        await executor.account(call_id)

    return await at_rate(rate, calls, call)


async def pipeline(rate: float, calls: int) -> tuple[list[float], list[float]]:
    """Measure the same calls through every service, and then round trips to one of them."""
    plan = Plan(model=MODEL, port=0, overrides=("engine_worker.backend=simulated",))
    async with Stack(plan) as stack, Program("bench", model=MODEL, nats_url=stack.nats_url) as program:

        async def call(_number: int) -> None:
            await program.chat(MESSAGES, max_tokens=TOKENS)

        await at_rate(rate, WARM_UP_CALLS, call)
        whole = await at_rate(rate, calls, call)
        return whole, await round_trips(stack.nats_url, rate, calls)


async def round_trips(nats_url: str, rate: float, calls: int) -> list[float]:
    """Measure the bus alone: a service answers PING without doing anything."""
    client = await nats.connect(nats_url)

    async def ping(_number: int) -> None:
        await client.request("$SRV.PING.autellix-load-balancer", timeout=5)

    measured = await at_rate(rate, calls, ping)
    await client.close()
    return measured


def percentile(values: list[float], percent: int) -> float:
    """Return the value that `percent` of the values do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main() -> None:
    """Print the added latency as one JSON object a repeat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=100.0, help="calls a second")
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    for _ in range(args.repeats):
        alone = asyncio.run(direct(args.rate, args.calls))
        whole, trips = asyncio.run(pipeline(args.rate, args.calls))
        added = {f"added_p{p}_ms": round(percentile(whole, p) - percentile(alone, p), 2) for p in (50, 99)}
        bus = {f"bus_round_trip_p{p}_ms": round(percentile(trips, p), 2) for p in (50, 99)}
        print(json.dumps({"rate": args.rate, "calls": args.calls, **added, **bus}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
