"""Bytes from outside, whatever they are: what takes them in says what is wrong by its own errors only, and returns."""

import json
from typing import Any

import fuzz_targets
import msgpack
import pytest
from fuzz_targets import SEEDS, TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autellix.schemas.codec import MalformedMessageError
from autellix.schemas.openai import InvalidRequestError
from autellix.services.config import ConfigError, load
from autellix.services.gateway.programs import Release, fields_of
from autellix.services.snapshots import head_of

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.sampled_from(["m", "user", "p", "call.finished", "submit_call", "chat.completions", "e0"])
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=16))
    | st.builds(msgpack.Timestamp, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999))
)
NAMES = sorted({field for kind in fuzz_targets.KINDS for field in kind.__struct_fields__} | {"type"})
TAGS = sorted(str(kind.__struct_config__.tag) for kind in fuzz_targets.KINDS)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner),
    max_leaves=12,
)
MESSAGES = st.builds(lambda tag, fields: {**fields, "type": tag}, st.sampled_from(TAGS), st.dictionaries(
    st.sampled_from(NAMES), TREES, max_size=8,
))  # fmt: skip


def packed(tree: Any) -> bytes:
    """Return a tree as MessagePack, with all that this has and JSON has not."""
    return bytes(msgpack.packb(tree))


def as_text(tree: Any) -> bytes:
    """Return a tree as JSON with NaN, infinity, and escapes for everything, also for halves of surrogate pairs."""
    return json.dumps(tree, default=repr).encode()


def damaged(data: bytes, at: int, put: bytes, cut: int) -> bytes:
    """Return bytes of which some are replaced."""
    at %= len(data) + 1
    return data[:at] + put + data[at + cut :]


INPUTS = st.one_of(
    st.binary(max_size=200),
    TREES.map(packed),
    MESSAGES.map(packed),
    MESSAGES.map(as_text),
    st.builds(
        damaged,
        st.sampled_from([seed for seeds in SEEDS.values() for seed in seeds]),
        st.integers(0, 500),
        st.binary(max_size=6),
        st.integers(0, 6),
    ),
)

DEEP = 100_000
HARD: dict[str, bytes] = {
    "nothing": b"",
    "deep lists in JSON": b"[" * DEEP,
    "deep fields in JSON": b'{"a":' * DEEP,
    "a deep field nobody asked for": b'{"x":' + b"[" * DEEP,
    "deep lists in MessagePack": b"\x91" * DEEP,
    "a deep field nobody asked for in MessagePack": b"\x81\xa1x" + b"\x91" * DEEP,
    "deep maps in MessagePack": b"\x81\xa1a" * DEEP,
    "deep keys": b"\x81" * DEEP,
    "a list of four thousand million": b"\xdd\xff\xff\xff\xff",
    "a map of four thousand million": b"\xdf\xff\xff\xff\xff",
    "bytes that do not come": b"\xc6\xff\xff\xff\xff",
    "an integer of many digits": b'{"max_tokens":' + b"9" * 100_000 + b"}",
    "digits": b"9" * 100_000,
    "a number of many digits": b'{"temperature":0.' + b"3" * 100_000 + b"}",
    "an exponent": b'{"temperature":1e' + b"9" * 1000 + b"}",
    "not a number": b'{"temperature":NaN}',
    "not a number in MessagePack": packed({"type": "submit_call", "body": {"temperature": float("nan")}}),
    "half a pair": b'{"model":"\\ud800"}',
    "half a pair, raw": b'{"model":"\xed\xa0\x80"}',
    "half a pair in MessagePack": b"\x81\xa5model\xa3\xed\xa0\x80",
    "no UTF-8": b'{"model":"\xff"}',
    "no UTF-8 in MessagePack": b"\x81\xa5model\xa1\xff",
    "a field twice": b'{"type":"submit_call","type":"start_session","body":{"model":"m","model":1}}',
    "a tag that is no text": b"\x81\xa4type\x91\x01",
    "a key that is a list": b"\x82\xa4type\xabsubmit_call\xa4body\x81\x91\x01\x01",
    "a time before all times": packed({"type": "submit_call", "body": {"x": msgpack.Timestamp(-(2**60), 0)}}),
    "an extension": packed({"type": "submit_call", "body": {"model": "m", "x": msgpack.ExtType(5, b"")}}),
    "a configuration that is deep": b"[nats]\nurl = " + b"[" * DEEP,
    "a deep table": b"[" + b"a." * 20_000 + b"a]",
    "a number of a configuration": b"[gateway]\nport = " + b"9" * 10_000,
    "a deep setting": b"gateway.port=" + b"[" * DEEP,
}


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=INPUTS)
def test_any_bytes(target: str, data: bytes) -> None:
    """Nothing but what is documented comes out."""
    TARGETS[target](data)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("what", HARD)
def test_hard_ones(target: str, what: str) -> None:
    """Neither does it for what decoders are known to fall over."""
    TARGETS[target](HARD[what])


def test_what_was_found() -> None:
    """Bodies, settings and heads that were answered by an error of Python's own."""
    with pytest.raises(InvalidRequestError):
        fields_of(b'{"x":' + b"[" * DEEP, Release)
    with pytest.raises(MalformedMessageError):
        head_of(b"\x81\xa1x" + b"\x91" * DEEP)
    for setting in ("gateway.port=" + "9" * 5000, "gateway.port=" + "[" * DEEP, "\udcff.x=1"):
        with pytest.raises(ConfigError):
            load(None, [setting])
