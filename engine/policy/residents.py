"""The programs whose caches are kept in an engine, and when they have to leave; the rules are in `gate.py`."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import inf

from autellix.engine.policy.call import Level
from autellix.engine.policy.pool_time import PoolTime
from autellix.engine.policy.program_cache import GatedCall, ProgramCache
from autellix.engine.policy.room import Room
from autellix.schemas.ids import ProgramId

ADMIT_UP_TO = 0.90
SHRINK_ABOVE = 0.98
AWAY_POOLS = 1.0


class Residents:
    """The residents of one engine.

    Args:
        room: The blocks, and who claims them.
        time: Measures T_pool.
        turn_pools: T_pools that a resident may stay though others wait: in its first turn, its second, and so on; the
            last counts for all further ones.
    """

    def __init__(self, room: Room, time: PoolTime, turn_pools: Sequence[float]) -> None:
        self._room = room
        self._time = time
        self._turn_pools = turn_pools
        self._programs: dict[ProgramId, ProgramCache] = {}
        self._in_turn: list[dict[ProgramId, ProgramCache]] = [{} for _ in turn_pools]
        """The same by the turn they are in, those that have been in it the longest first."""
        self._idle: dict[ProgramId, ProgramCache] = {}
        """Those at a call boundary, those away the longest first."""

    def __len__(self) -> int:
        return len(self._programs)

    @property
    def ids(self) -> list[ProgramId]:
        """Return who they are."""
        return list(self._programs)

    @property
    def free(self) -> float:
        """Return how many blocks are left for another resident; negative when it is too few already."""
        return ADMIT_UP_TO * self._room.blocks - self._room.used

    @property
    def away_ms(self) -> float:
        """Return how long a program may be away, and a thread's context be claimed that nobody continues."""
        return AWAY_POOLS * self._time.pool_ms

    @property
    def held(self) -> list[GatedCall]:
        """Return the held calls of those that are not to leave: they wait for the device."""
        return [gated for program in self._programs.values() if program.stays for gated in program.held]

    def ahead_of(self, gated: GatedCall) -> int:
        """Return how many other residents have a held call before that of one that waits for the device."""
        first = {each.call.program_id for each in self.held if each.standing < gated.standing}
        return len(first - {gated.call.program_id})

    def add(self, program: ProgramCache, now_ms: float) -> None:
        """Make a program a resident."""
        program.is_resident, program.resident_since_ms = True, now_ms
        program.turns += 1
        program.wanted = 0
        self._programs[program.program_id] = self._in_turn[self._turn_of(program)][program.program_id] = program
        self._room.claim(program, program.left)
        for gated in program.held:
            self._room.claim_call(program, gated)
        self._room.keep(program)

    def retire(self, program: ProgramCache) -> None:
        """Let a program be a resident no more, if it is one."""
        if not program.is_resident:
            return
        program.is_resident = program.is_leaving = False
        del self._programs[program.program_id], self._in_turn[self._turn_of(program)][program.program_id]
        self._idle.pop(program.program_id, None)
        self._room.release(program, program.left)
        for gated in program.held:
            self._room.release_call(program, gated)
        if program.held and not program.wanted:  # they waited for the device
            program.wanted = self._room.needed_by(program)

    def called(self, program: ProgramCache) -> None:
        """Note that a call of a program has come."""
        self._idle.pop(program.program_id, None)

    def left(self, program: ProgramCache) -> None:
        """Note that a call of a program is over."""
        if program.is_resident and not program.calls:
            self._idle[program.program_id] = program

    def retire_absent(self, now_ms: float) -> bool:
        """Let those leave that have been away for too long; tell whether there was any."""
        before = len(self)
        while self._idle and self._is_back_by_ms() <= now_ms:
            self.retire(next(iter(self._idle.values())))
        return len(self) < before

    def next_change_ms(self, now_ms: float) -> float:
        """Return a time before which nobody has to leave who has not now; infinite if that is never."""
        next_ends = [next((end for end in ends if end > now_ms), inf) for ends in map(self._ends_ms, self._in_turn)]
        away_ms = self._is_back_by_ms()
        return min(away_ms if away_ms > now_ms else inf, *next_ends)

    def give_way(self, newcomer: ProgramCache, level: Level, now_ms: float) -> bool:
        """Tell whether a held program fits, if need be after residents at a call boundary have left.

        Those that were away for too long leave in any case; those whose turn is over if that helps.

        Args:
            newcomer: The program.
            level: That of its call; who ranks before it stays. Of the others those leave that rank last.
            now_ms: When.
        """
        needed = self._room.needed_by(newcomer)
        if not self._programs or needed <= self.free:
            return True
        if self.retire_absent(now_ms):
            needed = self._room.needed_by(newcomer)
        done = [each for each in self._over(level, now_ms) if not each.in_flight]
        if len(done) < len(self) and needed > self.free + sum(each.claims for each in done):
            return False
        done.sort(key=lambda each: (each.level, each.resident_since_ms))
        while done and not self._fits(newcomer):
            self.retire(done.pop())
        return self._fits(newcomer)

    def turn_is_over(self, program: ProgramCache, newcomer: ProgramCache, level: Level, now_ms: float) -> bool:
        """Tell whether a resident has to leave for a held program: its turn is over, and it helps that such leave.

        Args:
            program: The resident.
            newcomer: The first that waits.
            level: That of its call; who ranks before it stays.
            now_ms: When.
        """
        if level > program.level or self._turn_ends_ms(program) > now_ms:
            return False
        over = self._over(level, now_ms)
        left = self.free + sum(each.claims for each in over)
        return len(over) == len(self) or self._room.needed_by(newcomer) <= left

    @property
    def are_too_many(self) -> bool:
        """Tell whether they have outgrown the room."""
        return self._room.used > SHRINK_ABOVE * self._room.blocks and len(self) > 1

    def is_last_of_too_many(self, program: ProgramCache) -> bool:
        """Tell whether the residents have outgrown the room and this one ranks last; if another does, that one goes."""
        if not self.are_too_many:
            return False
        last = max((program, *self._idle.values()), key=lambda each: (each.level, each.resident_since_ms))
        if last is not program:
            self.retire(last)
        return last is program

    def _over(self, level: Level, now_ms: float) -> list[ProgramCache]:
        """Return those that have been residents for long enough, and do not rank before who waits."""
        over = []
        for programs in self._in_turn:
            ended = takewhile(lambda each: self._turn_ends_ms(each) <= now_ms, programs.values())
            over += [each for each in ended if level <= each.level]
        return over

    def _is_back_by_ms(self) -> float:
        """Return when the first of those at a call boundary has been away for too long."""
        first = next(iter(self._idle.values()), None)
        return first.idle_since_ms + self.away_ms if first else inf

    def _fits(self, newcomer: ProgramCache) -> bool:
        """Tell whether a program fits as things are; with no resident at all the first does."""
        return not self._programs or self._room.needed_by(newcomer) <= self.free

    def _turn_of(self, program: ProgramCache) -> int:
        return min(program.turns, len(self._turn_pools)) - 1

    def _turn_ends_ms(self, program: ProgramCache) -> float:
        return program.resident_since_ms + self._turn_pools[self._turn_of(program)] * self._time.pool_ms

    def _ends_ms(self, programs: dict[ProgramId, ProgramCache]) -> Iterator[float]:
        return map(self._turn_ends_ms, programs.values())
