"""API keys: who holds one acts for a tenant over HTTP.

A key is 256 random bits, and what is kept of it is its SHA-256: nobody can try that many, so nothing slower is needed,
and who reads the file has no key. The file has a line a key: the tenant, or `*` for who runs it all, and the digest.
What follows a `#` is for people.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from autellix.schemas import tenants
from autellix.services.config import StartError

log = structlog.get_logger()

OPERATOR: Final = "*"
"""What the file calls who runs it all, in place of a tenant: everything is theirs to see."""
PREFIX: Final = "ak_"
"""How a key begins, so that people and scanners know one when they see it."""
PARTS: Final = 2
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Entry(NamedTuple):
    """One key."""

    tenant: str
    """`tenants.NOBODY` for who runs it all."""
    digest: str
    """SHA-256, in hexadecimal digits."""


def new_key() -> str:
    """Return a key that nobody had before."""
    return PREFIX + secrets.token_urlsafe(32)


def line_of(tenant: str, key: str) -> str:
    """Return the line that lets a key act for a tenant, or for `OPERATOR`."""
    return f"{tenant} {digest_of(key.encode())}\n"


def digest_of(key: bytes) -> str:
    """Return what is kept of a key."""
    return hashlib.sha256(key).hexdigest()


def parse(text: str) -> list[Entry]:
    """Return the keys of a file.

    Raises:
        ValueError: naming the line that is none.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        named = words[0] == OPERATOR or tenants.is_name(words[0])
        if not named or len(words) != PARTS or not _DIGEST.fullmatch(words[1]):
            raise ValueError(f"line {number} is not a tenant and a SHA-256")
        entries.append(Entry(tenants.NOBODY if words[0] == OPERATOR else words[0], words[1]))
    return entries


def tenant_of(entries: Iterable[Entry], key: bytes) -> str | None:
    """Return for whom a key acts, None for none; how long that takes says nothing of the keys that there are."""
    presented, found = digest_of(key), None
    for tenant, digest in entries:
        if hmac.compare_digest(presented, digest):
            found = tenant
    return found


class ApiKeys:
    """The keys of a file, read again when it changes: a key that is taken out opens nothing from then on."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            StartError: when it cannot be read, or holds anything else.
        """
        self._path = path
        self._entries: list[Entry] = []
        self._seen: tuple[int, ...] | None = None
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise StartError(f"API keys: {path}: {error}") from error

    def tenant_of(self, key: bytes) -> str | None:
        """Return for whom a key acts, None for none."""
        try:
            self._read()
        except (OSError, ValueError) as error:  # those that were good are, until the file is
            log.error("api keys not read again", error=str(error))  # noqa: TRY400 - the text says it all
        return tenant_of(self._entries, key)

    def _read(self) -> None:
        status = self._path.stat()
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._entries = parse(self._path.read_text())
            self._seen = seen
            log.info("api keys", count=len(self._entries))
