"""How one is known to a NATS server that asks, and knows it: a key of one's own (nkey), and certificates (TLS)."""

import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import nkeys


class AccessError(ValueError):
    """What is needed to connect cannot be used; the text says which file."""


class Access(NamedTuple):
    """The files of one user; an empty name is none."""

    nkey: str = ""
    """Holds the seed of the user's nkey, as `autellix access nats` writes it."""
    ca: str = ""
    """Certificates (PEM) of those who may vouch for the server; none: those that the system trusts."""
    certificate: str = ""
    """One's own certificate (PEM), where the server asks for one."""
    certificate_key: str = ""
    """The key (PEM) of that one."""


ANYBODY: Final = Access()
"""Who connects where nothing is asked."""


def options(access: Access) -> dict[str, Any]:
    """Return what nats-py is told for `access`.

    The inboxes of who has an nkey begin with its public half, so that a server can let each user hear its own only.

    Raises:
        AccessError: when a file cannot be read or used.
    """
    found: dict[str, Any] = {}
    if access.nkey:
        found |= _known_by(access.nkey)
    if access.ca or access.certificate:
        found["tls"] = _tls(access)
    return found


def inbox_prefix(public: str) -> str:
    """Return how the inboxes of a user begin."""
    return f"_INBOX.{public}"


def _known_by(file: str) -> dict[str, Any]:
    try:
        seed = Path(file).read_text().strip()
        public = nkeys.from_seed(bytearray(seed.encode())).public_key.decode()
    except (OSError, ValueError, nkeys.NkeysError) as error:
        raise AccessError(f"{file} holds no nkey seed: {error}") from error
    return {"nkeys_seed_str": seed, "inbox_prefix": inbox_prefix(public).encode()}


def _tls(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca or None)
        if access.certificate:
            context.load_cert_chain(access.certificate, access.certificate_key or None)
    except (OSError, ValueError) as error:
        raise AccessError(f"TLS: {access.ca or access.certificate}: {error}") from error
    return context
