"""Traces: what is read from them, and what is refused."""

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autellix.schemas.traces.records import TraceError, read_trace
from autellix.schemas.traces.workloads import TRACES, WORKLOADS


def call(number: int, *parents: int, **values: Any) -> dict[str, Any]:
    """Return one valid call of a trace, as JSON has it."""
    known = {"prompt_tokens": 100, "shared_prefix_tokens": 0, "system_tokens": 0, "output_tokens": 10}
    return {"id": number, "parents": parents, "interrupt_s": None, **known, **values}


def program(*calls: dict[str, Any], name: str = "p") -> dict[str, Any]:
    """Return one program of a trace, as JSON has it."""
    return {"program_id": name, "calls": calls}


def written(path: Path, *programs: dict[str, Any]) -> Path:
    """Write a trace and return its path."""
    path.write_bytes(gzip.compress(b"\n".join(map(msgspec.json.encode, programs))))
    return path


@pytest.mark.parametrize("trace", sorted({part.trace for parts in WORKLOADS.values() for part in parts}))
def test_shipped_traces_make_sense(trace: str) -> None:
    """Every trace that a workload names is in the repository and breaks no rule."""
    assert 300 <= len(read_trace(TRACES / f"{trace}.jsonl.gz"))


def test_a_call_begins_as_its_source(tmp_path: Path) -> None:
    """A prompt begins as `prefix_from` says, else as the first parent; a first call begins as no other."""
    calls = (call(0), call(1, 0), call(2, 1, 0), call(3, 1, prefix_from=0))
    (read,) = read_trace(written(tmp_path / "t.jsonl.gz", program(*calls)))

    assert [None, 0, 1, 0] == [each.source for each in read.calls]


NO_OUTPUT = {key: value for key, value in call(0).items() if key != "output_tokens"}

BAD = {
    "missing key": (program(NO_OUTPUT), "missing required field `output_tokens`"),
    "no calls": (program(), "length >= 1 - at `$.calls`"),
    "negative": (program(call(0, prompt_tokens=-1)), ">= 1 - at `$.calls[0].prompt_tokens`"),
    "negative interrupt": (program(call(0, interrupt_s=-0.5)), ">= 0.0 - at `$.calls[0].interrupt_s`"),
    "text for a number": (program(call(0, system_tokens="1")), "Expected `int`, got `str`"),
    "same id": (program(call(0), call(0)), "two calls have the same id"),
    "unknown parent": (program(call(0), call(1, 7)), "call 1: call 7, which it needs, does not exist"),
    "unknown source": (program(call(0, prefix_from=7)), "call 0: call 7, which it needs, does not exist"),
    "late parent": (program(call(1, 0), call(0)), "call 1: call 0, which it needs, does not come before it"),
    "own parent": (program(call(0, 0)), "call 0: call 0, which it needs, does not come before it"),
    "too much shared": (
        program(call(0), call(1, 0, prompt_tokens=200, shared_prefix_tokens=111)),
        "call 1: shared_prefix_tokens is 111, but its source has 110",
    ),
    "shared with nobody": (program(call(0, shared_prefix_tokens=1)), "is 1, but its source has 0"),
    "more than all": (program(call(0), call(1, 0, shared_prefix_tokens=101)), "is more than its prompt_tokens"),
    "system": (program(call(0, system_tokens=101)), "call 0: system_tokens is more than its prompt_tokens"),
    "group": (
        program(call(0, group=4), call(1, group=4, prompt_tokens=99)),
        "call 1: its prompt is not that of call 0 of its group",
    ),
    "same program": (program(call(0), name="first"), "program 'first' comes twice"),
}


@pytest.mark.parametrize("why", BAD)
def test_a_bad_line_is_refused_by_number(why: str, tmp_path: Path) -> None:
    """A line that breaks a rule is refused with file, line and reason."""
    bad, reason = BAD[why]
    path = written(tmp_path / "bad.jsonl.gz", program(call(0), name="first"), bad)

    with pytest.raises(TraceError) as refused:
        read_trace(path)

    assert str(refused.value).startswith(f"{path}:2: ")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("data", "where", "reason"),
    [
        (gzip.compress(b"{]"), ":1: ", "JSON is malformed"),
        (gzip.compress(b""), ": ", "no programs"),
        (b"{}", ": ", "Not a gzipped file"),
        (gzip.compress(msgspec.json.encode(program(call(0))) * 9)[:-20], ": ", "ended before"),
    ],
)
def test_what_is_no_trace_is_refused(data: bytes, where: str, reason: str, tmp_path: Path) -> None:
    """A file that is not gzip, is cut off, holds no JSON or nothing is refused by name."""
    path = tmp_path / "bad.jsonl.gz"
    path.write_bytes(data)

    with pytest.raises(TraceError) as refused:
        read_trace(path)

    assert str(refused.value).startswith(f"{path}{where}")
    assert reason in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A trace that does not exist is refused by name."""
    with pytest.raises(TraceError, match="nowhere"):
        read_trace(tmp_path / "nowhere.jsonl.gz")
