"""What every message is made of."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What every message is: immutable, named fields, tagged."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The OpenAI error object."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
