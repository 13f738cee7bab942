"""Every message survives its encoding: msgspec and the plain `msgpack` package read each other, and JSON reads back."""

import json
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autellix.schemas import codec, messages
from autellix.schemas.codec import FRAMES, Decoder, MalformedMessageError, encode, is_json
from autellix.schemas.messages import EndSession, StartSession, SubmitCall

KINDS: list[type[msgspec.Struct]] = [
    kind
    for name in messages.__all__
    if isinstance(kind := getattr(messages, name), type)
    and issubclass(kind, msgspec.Struct)
    and kind.__struct_config__.tag not in (None, kind.__name__)
]

numbers = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**63), 2**63 - 1)
anything = st.recursive(
    st.none() | st.booleans() | whole | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: whole,
    float: numbers,
    bool: st.booleans(),
    bytes: st.binary(max_size=50),
    Any: anything,
    NoneType: st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return what a field of this type may hold."""
    if hint in SIMPLE:
        return SIMPLE[hint]
    if hasattr(hint, "__supertype__"):
        return values(hint.__supertype__)
    inner = [values(argument) for argument in get_args(hint) if argument is not Ellipsis]
    match get_origin(hint):
        case origin if origin in (Union, UnionType):
            return st.one_of(inner)
        case origin if origin is tuple:
            return st.lists(inner[0], max_size=3).map(tuple)
        case origin if origin is list:
            return st.lists(inner[0], max_size=3)
        case origin if origin is dict:
            return st.dictionaries(inner[0], inner[1], max_size=3)
    return instances(hint)


def instances(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Return messages of one type, every field filled."""
    return st.builds(kind, **{name: values(hint) for name, hint in get_type_hints(kind).items()})


def test_kinds_are_found() -> None:
    """The tests below are about all messages of the protocol, requests to events."""
    tags = {str(kind.__struct_config__.tag) for kind in KINDS}

    assert {"submit_call", "routed_call", "chunk", "call.finished", "engine.load", "program"} <= tags
    assert len(KINDS) == len(tags) >= 35


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_round_trips(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    """A message decodes to itself from MessagePack, from JSON, and from what plain msgpack made of it."""
    message = data.draw(instances(kind))
    decoder = Decoder[Any](kind)
    packed = encode(message)
    plain = msgpack.unpackb(packed)

    assert decoder.decode(packed) == message
    assert decoder.decode(encode(message, as_json=True)) == message
    assert decoder.decode(msgpack.packb(plain)) == message
    assert plain["type"] == kind.__struct_config__.tag
    assert set(plain) == {"type", *kind.__struct_fields__}


def test_json_is_told_by_its_first_byte() -> None:
    """No MessagePack message looks like JSON, and JSON may begin with white space."""
    message = StartSession(name="x")

    assert not is_json(encode(message))
    assert is_json(encode(message, as_json=True))
    assert codec.Decoder[StartSession](StartSession).decode(b' \r\n\t{"type":"start_session","name":"x"}') == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"[1,2]",
        b'"text"',
        b"null",
        b"{}",
        b'{"type":"end_session"}',
        b'{"type":"no_such_message","program_id":"p"}',
        b'{"type":"start_session","program_id":"p"}',
        b'{"type":"end_session","program_id":7}',
        b'{"type":"end_session","program_id":"\xff"}',
        b'{"type":"end_session","program_id":"\\ud800"}',
        b'{"type":"end_session","program_id":"p"} {}',
        b"[" * 100_000,
        b"\x91" * 100_000,
        b"\xc1",
        b"\x82\xa4type\xabend_session",
        msgpack.packb({"type": "end_session", "program_id": None}),
        msgpack.packb(["end_session", "p"]),
        msgpack.packb({1: 2}),
    ],
)
def test_what_is_no_message(data: bytes) -> None:
    """Bytes that are not the expected message are one kind of error, whatever is wrong with them."""
    with pytest.raises(MalformedMessageError):
        Decoder[EndSession](EndSession).decode(data)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """No bytes at all make a decoder fail in another way."""
    try:
        frame: Any = FRAMES.decode(data)
    except MalformedMessageError as error:
        frame = str(error)

    assert frame


def test_unknown_fields_are_passed_over() -> None:
    """A newer sender may add fields."""
    data = json.dumps({"type": "end_session", "program_id": "p", "new": [1]}).encode()

    assert Decoder[EndSession](EndSession).decode(data).program_id == "p"


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, {"x": object()}, "\ud800"])
def test_what_has_no_encoding(value: Any) -> None:
    """A value without a form on the wire is an error of the sender."""
    with pytest.raises(ValueError, match=r".+"):
        encode(SubmitCall(body={"x": value}))
