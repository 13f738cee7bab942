"""`autellix sim run`: one scenario."""

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rich.console import Console

from autellix.engine.simulation.calibration import shipped
from autellix.schemas.traces.workloads import WORKLOADS
from autellix.services.load_balancer.choices import RULES
from autellix.services.simulator.picture import picture
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import PolicyName, Scenario, from_tree, put
from autellix.services.simulator.tables import run_table
from autellix.services.simulator.world import simulate

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

WIDTH = 120
"""Columns when the output is no terminal."""


def add(verbs: "Verbs") -> None:
    """Define the verb."""
    text = "Run one workload on simulated engines and print how its programs fared."
    parser = verbs.add_parser("run", help="run one scenario", description=text)
    default = Scenario()
    rate = parser.add_mutually_exclusive_group()
    names = ", ".join(WORKLOADS)
    parser.add_argument("--workload", default=default.workload, help=f"{names}, or the path of a .jsonl.gz trace")
    rate.add_argument("--rate", type=float, default=default.rate_per_s, help="programs that arrive a second")
    rate.add_argument("--offline", action="store_true", help="all programs arrive at once")
    parser.add_argument("--programs", type=int, default=default.programs, help="how many arrive (%(default)s)")
    parser.add_argument("--engines", type=int, default=default.engines, help="how many serve them (%(default)s)")
    parser.add_argument("--policy", choices=get_args(PolicyName), default=default.policy, help="default: %(default)s")
    parser.add_argument("--balancer", choices=RULES, default=default.balancer.policy, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=default.seed, help="of arrivals and chance (%(default)s)")
    parser.add_argument(
        "--calibration", default=default.calibration, help=f"{', '.join(shipped())}, or the path of a .toml file"
    )
    parser.add_argument(
        "--kv-tier",
        type=int,
        default=default.kv_tier_tokens,
        metavar="TOKENS",
        help="room in CPU memory for copies of cached blocks, each engine's (none)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="any other value of a scenario, as beta=4 or overrides.engine.slots=128",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw latencies and the engines' load here")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Simulate, print, write.

    Raises:
        ValueError: for a scenario that makes no sense, and when something that it takes is not installed.
    """
    for file in filter(None, (arguments.json, arguments.png)):
        if file.is_dir() or not file.absolute().parent.is_dir():
            raise ValueError(f"{file}: no file can be written there")
    if arguments.png and not importlib.util.find_spec("matplotlib"):
        raise ValueError("drawing needs matplotlib: pip install 'autellix[sim]'")
    scenario = _scenario(arguments)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    began_s = time.perf_counter()
    with console.status("simulating"):
        result = simulate(scenario)
    took_s = time.perf_counter() - began_s
    console.print(run_table(result))
    console.print(f"Simulated in {took_s:.1f} s.")
    if arguments.json:
        arguments.json.write_bytes(result.as_json())
    if arguments.png:
        _draw(result, arguments.png)


def _draw(result: Result, file: Path) -> None:
    from autellix.services.simulator.figures.plots import draw  # here, since it needs an extra: see `run`

    draw(picture(result), file)


def _scenario(arguments: argparse.Namespace) -> Scenario:
    tree: dict[str, Any] = {
        "workload": arguments.workload,
        "rate_per_s": None if arguments.offline else arguments.rate,
        "programs": arguments.programs,
        "engines": arguments.engines,
        "policy": arguments.policy,
        "balancer": {"policy": arguments.balancer},
        "seed": arguments.seed,
        "calibration": arguments.calibration,
        "kv_tier_tokens": arguments.kv_tier,
        "keep_loads": arguments.png is not None,
    }
    for setting in arguments.settings:
        put(tree, setting)
    return from_tree(tree)
