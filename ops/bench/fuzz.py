"""Feeds everything that takes bytes from outside with inputs that reach new code: `fuzz.py --seconds 300`.

It needs atheris (`pip install atheris`, for Python 3.11 to 3.13), which no set of requirements holds: run it in an
environment of its own, with the services' dependencies and this repository's `ops/packaging` on PYTHONPATH. It stops at
the first input that raises what it must not, and writes it to a file `crash-*`; `fuzz.py FILE` runs that one again.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

SLOW_S = 5
"""An input that takes longer counts as a hang."""


def main() -> None:
    """Search for the time asked for; libFuzzer, which atheris is built on, ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--bytes-max", type=int, default=4096, help="of an input")
    parser.add_argument("file", nargs="?", help="an input to run again")
    arguments = parser.parse_args()
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["autellix", "fuzz_targets"]):
        targets = importlib.import_module("fuzz_targets")
    known = list(targets.TARGETS.values())

    def one(data: bytes) -> None:
        if data:
            known[data[0] % len(known)](data[1:])

    if arguments.file:
        one(Path(arguments.file).read_bytes())
        return
    with tempfile.TemporaryDirectory() as corpus:
        for number, name in enumerate(targets.TARGETS):
            for index, seed in enumerate(targets.SEEDS[name]):
                (Path(corpus) / f"{name}-{index}").write_bytes(bytes([number]) + seed)
        limits = [f"-max_total_time={arguments.seconds}", f"-max_len={arguments.bytes_max}", f"-timeout={SLOW_S}"]
        atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
