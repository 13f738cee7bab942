"""Messages to bytes and back: MessagePack on the bus, JSON for people with the `nats` command line.

A decoder is built once for a message type or a union of them and reads both encodings: no MessagePack map begins with
the byte of `{` or `[`, so the first byte tells them apart.
"""

from typing import Any, Generic, TypeVar

import msgspec

from autellix.schemas.messages import (
    AnyCallEvent,
    CallEnd,
    DurableLoad,
    EngineEvent,
    Event,
    Frame,
    ProgramEnd,
    ProgramEvent,
)

T = TypeVar("T")

_PACK = msgspec.msgpack.Encoder()
_JSON = msgspec.json.Encoder()
_JSON_STARTS = frozenset(b"{[ \t\r\n")


class MalformedMessageError(ValueError):
    """The bytes are not the message that was expected; the text says where."""


def encode(message: msgspec.Struct, *, as_json: bool = False) -> bytes:
    """Return `message` as MessagePack, or as JSON text.

    Raises:
        ValueError: when a value inside has no form in that encoding, as an integer beyond 64 bits.
    """
    try:
        return _JSON.encode(message) if as_json else _PACK.encode(message)
    except (OverflowError, TypeError, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from error


def is_json(data: bytes) -> bool:
    """Tell whether `data` is a request in JSON, to be answered in JSON."""
    return bool(data) and data[0] in _JSON_STARTS


class Decoder(Generic[T]):
    """Decodes and validates one message type, or one union of them, from either encoding."""

    def __init__(self, expected: Any) -> None:
        self._pack: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(expected)
        self._json: msgspec.json.Decoder[T] = msgspec.json.Decoder(expected)

    def decode(self, data: bytes) -> T:
        """Return the message.

        Raises:
            MalformedMessageError: when `data` is not such a message.
        """
        try:
            return self._json.decode(data) if is_json(data) else self._pack.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise MalformedMessageError(str(error)) from error


FRAMES: Decoder[Frame] = Decoder(Frame)
EVENTS: Decoder[Event] = Decoder(Event)
PROGRAM_EVENTS: Decoder[ProgramEvent] = Decoder(ProgramEvent)
PROGRAM_ENDS: Decoder[ProgramEnd] = Decoder(ProgramEnd)
CALL_EVENTS: Decoder[AnyCallEvent] = Decoder(AnyCallEvent)
CALL_ENDS: Decoder[CallEnd] = Decoder(CallEnd)
ENGINE_EVENTS: Decoder[EngineEvent] = Decoder(EngineEvent)
DURABLE_EVENTS: Decoder[DurableLoad] = Decoder(DurableLoad)
