"""`autellix bench`: measurements of real servers, one small module a kind."""

from typing import TYPE_CHECKING

from autellix.client.cli import bench_compare, bench_replay

if TYPE_CHECKING:
    from autellix.client.cli.options import Verbs

KINDS = (bench_replay, bench_compare)
"""Each with `add` (its arguments) and `run` (what it does)."""


def add(verbs: "Verbs") -> None:
    """Define the verb and the verbs below it."""
    text = "Run recorded agent programs against real servers and measure how the programs fare."
    parser = verbs.add_parser("bench", help="measure real servers with recorded programs", description=text)
    kinds = parser.add_subparsers(title="kinds", required=True, metavar="KIND")
    for kind in KINDS:
        kind.add(kinds)
