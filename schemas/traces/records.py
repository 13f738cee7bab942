"""Reads traces of programs: gzip-compressed JSON Lines, one program a line, as `ops/bench/traces/README.md` says.

Whatever is wrong with a trace is refused here, by file and line, before anything runs.
"""

import gzip
import zlib
from collections.abc import Container, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

Tokens = Annotated[int, Meta(ge=0)]
SomeTokens = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
FILES_REMEMBERED = 8


class TraceError(ValueError):
    """A trace that makes no sense; the text names file and line."""


class TraceCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a recorded program; tokens."""

    id: int
    parents: tuple[int, ...]
    """The calls that must end before this one starts."""
    prompt_tokens: SomeTokens
    shared_prefix_tokens: Tokens
    """Leading tokens of the prompt that are prompt and output of its `source`."""
    system_tokens: Tokens
    """Leading tokens of the prompt that other programs have, too."""
    output_tokens: SomeTokens
    interrupt_s: Seconds | None
    """Time from the end of its parents to its start; None: unknown."""
    prefix_from: int | None = None
    group: int | None = None
    """Calls of one group have the same prompt."""

    @property
    def source(self) -> int | None:
        """Return the call whose prompt and output this one's prompt begins with."""
        if self.prefix_from is None and self.parents:
            return self.parents[0]
        return self.prefix_from

    @property
    def context_tokens(self) -> int:
        """Return how long the sequence is in the end."""
        return self.prompt_tokens + self.output_tokens


class TraceProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded program: its calls, parents before children."""

    program_id: str
    calls: Annotated[tuple[TraceCall, ...], Meta(min_length=1)]
    prefix_group: str = ""
    """Programs of one group have the same system prompt."""

    @property
    def context_tokens(self) -> int:
        """Return the longest sequence that an engine must hold for it."""
        return max(call.context_tokens for call in self.calls)


_PROGRAMS = msgspec.json.Decoder(TraceProgram)


@lru_cache(FILES_REMEMBERED)
def read_trace(path: Path) -> tuple[TraceProgram, ...]:
    """Return the programs of a trace.

    Raises:
        TraceError: for a file that cannot be read, and for the first line that breaks a rule.
    """
    programs: dict[str, TraceProgram] = {}
    for number, line in _lines(path):
        try:
            program = _PROGRAMS.decode(line)
            _check_new(program, programs)
            _check_calls(program)
        except ValueError as error:
            raise TraceError(f"{path}:{number}: {error}") from error
        programs[program.program_id] = program
    if not programs:
        raise TraceError(f"{path}: no programs")
    return tuple(programs.values())


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with gzip.open(path) as file:
            yield from enumerate(file, start=1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: {error}") from error


def _check_new(program: TraceProgram, before: Container[str]) -> None:
    if program.program_id in before:
        raise ValueError(f"program {program.program_id!r} comes twice")


def _check_calls(program: TraceProgram) -> None:
    """Refuse calls that contradict each other."""
    before: dict[int, TraceCall] = {}
    groups: dict[int, TraceCall] = {}
    later = {call.id for call in program.calls}
    if len(later) < len(program.calls):
        raise ValueError("two calls have the same id")
    for call in program.calls:
        for earlier in (*call.parents, *(() if call.prefix_from is None else (call.prefix_from,))):
            if earlier not in before:
                problem = "does not come before it" if earlier in later else "does not exist"
                raise ValueError(f"call {call.id}: call {earlier}, which it needs, {problem}")
        _check_prompt(call, before.get(call.source) if call.source is not None else None)
        first = groups.setdefault(call.group, call) if call.group is not None else call
        if _prompt_of(first) != _prompt_of(call):
            raise ValueError(f"call {call.id}: its prompt is not that of call {first.id} of its group")
        before[call.id] = call


def _prompt_of(call: TraceCall) -> tuple[int | None, ...]:
    return call.prompt_tokens, call.shared_prefix_tokens, call.system_tokens, call.source


def _check_prompt(call: TraceCall, source: TraceCall | None) -> None:
    available = source.context_tokens if source else 0
    if call.shared_prefix_tokens > available:
        raise ValueError(
            f"call {call.id}: shared_prefix_tokens is {call.shared_prefix_tokens}, but its source has {available}"
        )
    for name in ("shared_prefix_tokens", "system_tokens"):
        if getattr(call, name) > call.prompt_tokens:
            raise ValueError(f"call {call.id}: {name} is more than its prompt_tokens")
