"""`autellix access`: makes the keys that NATS and the gateway ask for.

`nats FOLDER` writes an nkey seed for each service and for the operator, `<name>.nk`, one for each `--tenant`,
`tenants/<tenant>.nk`, and the server's rules, `nats-access.conf`. What is there stays: run again, it adds what is
missing. A tenant whose file is taken away is gone from the rules of the next run.

`key FILE TENANT` adds an API key for a tenant, or with `--operator` for who runs it all, and prints it: it is not kept.
"""

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import nkeys

from autellix.schemas import tenants
from autellix.services.access.permissions import USERS
from autellix.services.access.server import rules
from autellix.services.api_keys import OPERATOR, line_of, new_key
from autellix.services.command_line import Parser

RULES = "nats-access.conf"
TENANTS = "tenants"
SEED_BYTES = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status."""
    parser = Parser(prog="autellix access", description="Makes the keys that NATS and the gateway ask for.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    nats = verbs.add_parser("nats", help="keys and rules for the NATS server")
    nats.add_argument("folder", type=Path, metavar="FOLDER")
    nats.add_argument("--tenant", type=_tenant, action="append", default=[], dest="tenants", metavar="NAME")
    nats.set_defaults(run=_nats)
    key = verbs.add_parser("key", help="a key for the gateway")
    key.add_argument("file", type=Path, metavar="FILE")
    whose = key.add_mutually_exclusive_group(required=True)
    whose.add_argument("tenant", type=_tenant, nargs="?", metavar="TENANT")
    whose.add_argument("--operator", action="store_const", const=OPERATOR, dest="tenant")
    key.set_defaults(run=_key)
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except (OSError, ValueError, nkeys.NkeysError) as error:
        print(f"autellix access: {error}", file=sys.stderr)
        return 1
    return 0


def _nats(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    (folder / TENANTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in arguments.tenants:
        _public_half(folder / TENANTS / f"{name}.nk")
    known = sorted(path for path in (folder / TENANTS).glob("*.nk") if tenants.is_name(path.stem))
    text = rules(
        {name: _public_half(folder / f"{name}.nk") for name in USERS},
        {path.stem: _public_half(path) for path in known},
    )
    _write(folder / RULES, text)
    print(f"{folder / RULES}: {len(USERS)} users, {len(known)} tenants")


def _public_half(path: Path) -> str:
    """Return the public half of the nkey whose seed is in a file, which is made if it is not there."""
    if not path.exists():
        seed: bytes = nkeys.encode_seed(secrets.token_bytes(SEED_BYTES), nkeys.PREFIX_BYTE_USER)
        _write(path, seed.decode() + "\n")
    try:
        public: bytes = nkeys.from_seed(bytearray(path.read_text().strip().encode())).public_key
    except (ValueError, nkeys.NkeysError) as error:
        raise ValueError(f"{path} holds no nkey seed: {error}") from error
    return public.decode()


def _key(arguments: argparse.Namespace) -> None:
    key = new_key()
    with _private(arguments.file, os.O_APPEND) as file:
        file.write(line_of(arguments.tenant, key))
    print(key)


def _write(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, all of it or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with _private(draft, os.O_TRUNC) as file:
        file.write(text)
    draft.replace(path)


def _private(path: Path, flag: int) -> TextIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600), "w")


def _tenant(text: str) -> str:
    if not tenants.is_name(text):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no tenant: a-z, 0-9 and '-', at most 32")
    return text


if __name__ == "__main__":
    sys.exit(main())
