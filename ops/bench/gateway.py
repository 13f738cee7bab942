"""Measures what the way through the gateway costs against vLLM's own HTTP server: first tokens, and many streams.

Both are up at once, each with a real engine of the same size, and take turns: call by call for first tokens, and in
rounds for streams, so that a slow minute of the machine hits both. The engine has a core of its own (`machine.divide`).
It ends with 1 if a floor is missed: the first token within 3 ms at the median, and with 64 streams at least
0.95 of the tokens a second. Run it by `make bench-gateway`.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from autellix.client.bench import machine
from autellix.client.bench.servers import running
from autellix.client.bench.systems import Shape, read_systems
from autellix.client.bench.targets import GatewayTarget, OpenAITarget, Target

HERE = Path(__file__).parent.resolve()
SHAPE = Shape(slots=64, kv_tokens=131_072)
WARM_UP = 8
PROMPT_TOKENS = 200
TOKEN_IDS = range(10, 250)
"""Of the tiny model, without those that end an answer."""

FIRST_TOKEN_MS_MOST = 3.0
STREAMS_LEAST = 0.95


class Found(NamedTuple):
    """What was measured; milliseconds and tokens a second, of vLLM's server and of ours."""

    first_ms: tuple[list[float], list[float]]
    tokens_per_s: tuple[list[float], list[float]]

    @property
    def first_more_ms(self) -> float:
        """How much later our first token comes: the median of the differences of pairs."""
        return statistics.median(ours - theirs for theirs, ours in zip(*self.first_ms, strict=True))

    @property
    def streams_ratio(self) -> float:
        """Our tokens a second over theirs: the median of the ratios of rounds."""
        return statistics.median(ours / theirs for theirs, ours in zip(*self.tokens_per_s, strict=True))


async def first_token_ms(target: Target, name: str) -> float:
    """Return how long one call takes to its first token."""
    prompt = random.choices(TOKEN_IDS, k=PROMPT_TOKENS)  # noqa: S311 - texts
    async with target.program(name, "") as link:
        answered = await link.call(prompt, max_tokens=2, thread="main", parents=[])
    return answered.first_token_s * 1000


async def tokens_per_s(target: Target, streams: int, seconds: float) -> float:
    """Return how many tokens a second so many streams bring, each a program of one call after the other."""
    ends_at, tokens = time.perf_counter() + seconds, 0

    async def stream(number: int) -> None:
        nonlocal tokens
        async with target.program(f"stream-{number}", "") as link:
            while time.perf_counter() < ends_at:
                prompt = random.choices(TOKEN_IDS, k=PROMPT_TOKENS)  # noqa: S311 - texts
                answered = await link.call(prompt, max_tokens=64, thread="main", parents=[])
                tokens += answered.output_tokens

    began = time.perf_counter()
    await asyncio.gather(*map(stream, range(streams)))
    return tokens / (time.perf_counter() - began)


async def measured(pairs: int, rounds: int, streams: int, seconds: float) -> Found:
    """Start both and let them take turns."""
    systems = read_systems(HERE / "systems.toml")
    found = Found(([], []), ([], []))
    async with AsyncExitStack() as up:
        folder = Path(up.enter_context(tempfile.TemporaryDirectory(prefix="autellix-")))
        targets: list[Target] = []
        for name, kind in (("vllm-opt", OpenAITarget), ("auto", GatewayTarget)):
            print(f"starting {name}", file=sys.stderr)  # noqa: T201
            system = running(name, systems[name], SHAPE, here=HERE, log=folder / f"{name}.log")
            targets.append(await up.enter_async_context(kind(await up.enter_async_context(system))))
        for number in range(-WARM_UP, pairs):
            for which in random.sample((0, 1), 2):
                taken_ms = await first_token_ms(targets[which], f"call-{number}")
                if number >= 0:
                    found.first_ms[which].append(taken_ms)
        for number in range(rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                found.tokens_per_s[which].append(await tokens_per_s(targets[which], streams, seconds))
    return found


def main() -> int:
    """Measure, print, and say whether the floors are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=150, help="calls to each for the first token")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of streams to each")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a round, at least")
    parser.add_argument("--json", type=Path, help="also write what was measured")
    arguments = parser.parse_args()
    machine.divide()
    found = asyncio.run(measured(arguments.pairs, arguments.rounds, arguments.streams, arguments.seconds))
    print(f"{machine.described()}\n")  # noqa: T201
    print("| | vLLM's server | Autellix | |\n|---|---:|---:|---|")  # noqa: T201
    theirs, ours = (statistics.median(times) for times in found.first_ms)
    print(f"| first token, ms (median of {arguments.pairs}) | {theirs:.1f} | {ours:.1f} | {found.first_more_ms:+.1f} |")  # noqa: T201
    theirs, ours = (statistics.median(rates) for rates in found.tokens_per_s)
    print(f"| tokens/s, {arguments.streams} streams | {theirs:.0f} | {ours:.0f} | {found.streams_ratio:.3f} |")  # noqa: T201
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode({"machine": machine.described(), **found._asdict()}))
    kept = found.first_more_ms <= FIRST_TOKEN_MS_MOST and found.streams_ratio >= STREAMS_LEAST
    print(f"\nThe floors, {FIRST_TOKEN_MS_MOST:g} ms and {STREAMS_LEAST:g}, are {'kept' if kept else 'missed'}.")  # noqa: T201
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
