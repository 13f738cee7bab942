"""The ids of programs and calls: unguessable, and for a program that its client names always the same."""

import hashlib
from collections.abc import Callable

import msgspec

from autellix.schemas import tenants
from autellix.schemas.identity import response_id
from autellix.schemas.ids import CALL_ID_BEGIN, CallId, ProgramId
from autellix.schemas.messages import SubmitCall


class Ids:
    """Makes ids.

    Args:
        unique: Returns another text that nobody can guess at each call.
        secret: The key of the ids of named programs; every instance has the same.
    """

    def __init__(self, unique: Callable[[], str], secret: bytes) -> None:
        self.unique = unique
        self._secret = secret

    def program(self, tenant: str) -> ProgramId:
        """Return the id of a new program."""
        return tenants.program_id(tenant, self.unique())

    def named(self, name: str, tenant: str) -> ProgramId:
        """Return the id of the program that a tenant's client calls `name`."""
        whole = f"{tenant}\0{name}" if tenant else name  # no name has a NUL
        digest = hashlib.blake2b(whole.encode(), key=self._secret, digest_size=16)
        return tenants.program_id(tenant, digest.hexdigest())

    def call(self) -> CallId:
        """Return the id of a new call."""
        return CallId(f"{CALL_ID_BEGIN}{self.unique()}")

    def into(self, body: bytes, program_id: ProgramId) -> bytes:
        """Return a body of `/v1/responses` with the response's id: it names its program, for who goes on from it."""
        fields = msgspec.json.decode(body)
        return msgspec.json.encode({**fields, "request_id": response_id(program_id, self.unique())})


def is_named(request: SubmitCall) -> bool:
    """Tell whether a call names its program in its client's own words."""
    return bool(request.session and request.session.strip())
