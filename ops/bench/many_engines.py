"""Many simulated engines in one process, for `scale.py`: workers as any others, each with an id of its own."""

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack

import uvloop

from autellix.engine.executor import EngineInfo
from autellix.engine.simulated import SimulatedExecutor
from autellix.services import logs
from autellix.services.config import EngineWorkerSettings
from autellix.services.engine_worker.shell import EngineWorker
from autellix.services.nats_bus import connect

SLOTS = 256


async def run(nats_url: str, first: int, count: int, step_ms: float) -> None:
    """Run engines `first` to `first + count - 1` until told to stop."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    info = EngineInfo(models=("tiny",), policy="auto", slots=SLOTS, kv_tokens=0, max_model_len=2**20)
    async with AsyncExitStack() as life:
        for number in range(first, first + count):
            bus = await connect(nats_url, name="engine-worker")
            life.push_async_callback(bus.close)
            settings = EngineWorkerSettings(engine_id=f"engine-{number}", model="tiny", drain_s=5)
            executor = SimulatedExecutor(info, step_ms=step_ms)
            await life.enter_async_context(EngineWorker(bus, executor, settings, on_gone=over.set))
        print("ready", flush=True)  # noqa: T201 - who started it waits for that
        await over.wait()


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats-url", required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--step-ms", type=float, required=True)
    arguments = parser.parse_args()
    logs.setup("engine-worker", "error")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(arguments.nats_url, arguments.first, arguments.count, arguments.step_ms))


if __name__ == "__main__":
    main()
