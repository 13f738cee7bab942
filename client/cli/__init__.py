"""The command `autellix`: one small module a verb, each with `add` (its arguments) and `run` (what it does)."""

import argparse
import os
import sys
from collections.abc import Sequence

from autellix.client.cli import (
    access,
    bench,
    completion,
    doctor,
    drain,
    ps,
    result,
    run,
    serve,
    show,
    sim,
    submit,
    top,
    trace,
    up,
)
from autellix.client.errors import AutellixError

VERBS = (up, serve, run, submit, result, ps, top, show, trace, drain, doctor, sim, bench, access, completion)
INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, by custom of the shell."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status; what a person can mend is one sentence on stderr and status 1."""
    parser = argparse.ArgumentParser(
        prog="autellix", description="Serves LLM agents: whole programs, not single calls."
    )
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add(verbs)
    arguments = parser.parse_args(argv)
    arguments.parser = parser
    try:
        status: int = arguments.run(arguments)
    except BrokenPipeError:  # who read the output, as `head`, has gone; Python must not try to flush it at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (AutellixError, OSError) as error:
        print(f"autellix: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return status
