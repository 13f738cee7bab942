"""The calls that a gate holds, in order."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any

from autellix.engine.policy.program_cache import GatedCall
from autellix.schemas.ids import ProgramId


class HeldCalls:
    """Held calls by their standing: the smaller comes first, and no two are equal.

    Args:
        small: So many blocks a small call takes at most.
    """

    def __init__(self, small: float) -> None:
        self._entries: list[tuple[Any, GatedCall]] = []
        self._small_blocks = small
        self._small: list[tuple[Any, GatedCall]] = []
        """The small ones of these."""
        self._of_program: dict[ProgramId, list[Any]] = {}
        """The standings of its calls, in order."""
        self._firsts: list[tuple[Any, ProgramId]] = []
        """The first of each program, in order."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[GatedCall]:
        return (gated for _, gated in self._entries)

    @property
    def first(self) -> GatedCall:
        """Return the first; there must be one."""
        return self._entries[0][1]

    @property
    def programs(self) -> list[ProgramId]:
        """Return the programs with a held call, each once, the first first."""
        return [program_id for _, program_id in self._firsts]

    def small(self, most: int) -> list[GatedCall]:
        """Return the first small ones, so many at most."""
        return [gated for _, gated in islice(self._small, most)]

    def first_of(self, program_id: ProgramId) -> GatedCall:
        """Return the first held call of a program; there must be one."""
        return self._entries[_place(self._entries, self._of_program[program_id][0])][1]

    def add(self, gated: GatedCall, standing: Any) -> None:
        """Hold a call."""
        gated.standing = standing
        insort(self._entries, (standing, gated), key=itemgetter(0))
        if gated.blocks <= self._small_blocks:
            insort(self._small, (standing, gated), key=itemgetter(0))
        program_id = gated.call.program_id
        standings = self._of_program.setdefault(program_id, [])
        first = standings[0] if standings else None
        insort(standings, standing)
        self._change_first(program_id, first, standings[0])

    def remove(self, gated: GatedCall) -> None:
        """Hold a call no more."""
        del self._entries[_place(self._entries, gated.standing)]
        if gated.blocks <= self._small_blocks:
            del self._small[_place(self._small, gated.standing)]
        program_id = gated.call.program_id
        standings = self._of_program[program_id]
        first = standings[0]
        del standings[bisect_left(standings, gated.standing)]
        self._change_first(program_id, first, standings[0] if standings else None)
        if not standings:
            del self._of_program[program_id]
        gated.standing = None

    def programs_ahead_of(self, gated: GatedCall) -> int:
        """Return how many other programs have a call before a held one."""
        is_first = self._of_program[gated.call.program_id][0] == gated.standing
        return _place(self._firsts, gated.standing) - (not is_first)

    def _change_first(self, program_id: ProgramId, before: Any, after: Any) -> None:
        if before == after:
            return
        if before is not None:
            del self._firsts[_place(self._firsts, before)]
        if after is not None:
            insort(self._firsts, (after, program_id), key=itemgetter(0))


def _place(entries: list[tuple[Any, Any]], standing: Any) -> int:
    """Return how many come before a standing."""
    return bisect_left(entries, standing, key=itemgetter(0))
