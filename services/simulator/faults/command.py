"""`autellix sim faults`: many seeds."""

import argparse
import time
from typing import TYPE_CHECKING

from autellix.services.simulator.faults.plan import SERVING_MS, plan_of
from autellix.services.simulator.faults.world import run_plan

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = "Run the service cores under faults, seed by seed, and say which promises did not hold."
    parser = verbs.add_parser("faults", help="break things, seed by seed", description=text)
    parser.add_argument("--seeds", type=int, default=100, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (%(default)s)")
    parser.add_argument("--programs", type=int, default=8, help="the most that come with one seed (%(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=SERVING_MS / 60_000, help="within which they come (%(default)s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the seeds, print those that fail and how to replay each, and return 1 if any did.

    Raises:
        ValueError: when there is nothing to run.
    """
    if min(arguments.seeds, arguments.programs) < 1 or not arguments.minutes > 0:
        raise ValueError("--seeds, --programs and --minutes must be above 0")
    began_s, failed = time.perf_counter(), 0
    options = f"--programs {arguments.programs} --minutes {arguments.minutes:g}"
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        wrong = run_plan(plan_of(seed, programs=arguments.programs, minutes=arguments.minutes))
        if wrong:
            failed += 1
            say(f"seed {seed} (autellix sim faults --first {seed} --seeds 1 {options}):", *wrong)
    took_s = time.perf_counter() - began_s
    say(f"{arguments.seeds} seeds, {failed} failed, {took_s:.1f} s.")
    return int(failed > 0)


def say(*lines: str) -> None:
    """Print a line and those that belong to it."""
    print(*lines, sep="\n  ", flush=True)  # noqa: T201 - this command talks to a person
